"""The steps of the packed chat pipeline, one module each. The function with the step's name takes paths; `run` takes
paths or URIs, and Kubeflow calls it.

    generate_chat  conversations → transcripts
    pack_chat      transcripts → blocks and the pending manifest

generate_chat ─► pack_chat ─► validate_alignment (shared, `spanloom.steps`)
"""
