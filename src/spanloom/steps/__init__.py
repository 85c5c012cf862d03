"""The six steps of the pipeline, one module each: paths in → paths out. The only place where rooms meet.

    verify_tokenizer ─► render_shard ×4 ─► assemble_split ─► write_indexed ×4 ─► assemble_manifest ─► validate_alignment

Packed chat: generate_chat makes its transcripts.

`spanloom build` runs them all in one process tree, `spanloom step …` runs one of them, and so does each container.
"""
