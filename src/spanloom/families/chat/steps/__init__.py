"""The steps of the packed chat pipeline, one module each: `NAME` over paths, `run` over places, what Kubeflow gets.

    generate_chat  conversations → transcripts
    pack_chat      transcripts → blocks and the pending manifest

generate_chat ─► pack_chat ─► validate_alignment (shared, `spanloom.steps`)
"""
