"""The steps of the SYNTH KD pipeline, one module each: `NAME` (paths), `run` (paths or URIs), metadata for Kubeflow.

    verify_tokenizer   the asset is the pinned file
    render_shard       a shard → rendered parts and ids
    write_indexed      rendered parts → the files of a shard
    assemble_split     ids of all shards → repeated ids, number of valid documents
    assemble_manifest  inventories → the pending manifest

    verify_tokenizer ─► render_shard ×4 ─┬─► write_indexed ×4 ─┬─► assemble_manifest ─► validate_alignment
                                         └─► assemble_split ───┘

All families share the last step, in `spanloom.steps`. `spanloom build` runs all steps in one process tree;
`spanloom step …` runs one step, and so does each container.
"""
