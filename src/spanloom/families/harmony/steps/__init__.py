"""The steps of the SYNTH KD pipeline, one module each: `NAME` over paths, `run` over places, what Kubeflow gets.

    verify_tokenizer   the asset is the pinned file
    render_shard       a shard → rendered parts and ids
    write_indexed      rendered parts → the files of a shard
    assemble_split     ids of all shards → is one repeated, how many are valid
    assemble_manifest  inventories → the pending manifest

    verify_tokenizer ─► render_shard ×4 ─┬─► write_indexed ×4 ─┬─► assemble_manifest ─► validate_alignment
                                         └─► assemble_split ───┘

The last is shared by all families, `spanloom.steps`. `spanloom build` runs them all in one process tree, `spanloom step
…` runs one of them, and so does each container.
"""
