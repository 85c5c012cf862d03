"""The steps of the SYNTH KD pipeline, one module each: `NAME` over paths, `run` over places, what Kubeflow is told.

    verify_tokenizer ─► render_shard ×4 ─► assemble_split ─► write_indexed ×4 ─► assemble_manifest ─► validate_alignment

The last is shared by all families, `spanloom.steps`. `spanloom build` runs them all in one process tree, `spanloom step
…` runs one of them, and so does each container.
"""
