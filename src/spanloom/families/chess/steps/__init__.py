"""The steps of the chess pipeline, one module each: `run` over places, and what Kubeflow gets.

    prepare_chess   a part of the games → prepared files
    assemble_chess  the parts → one root with a pending manifest
    validate_chess  whether it becomes the manifest

prepare_chess ×n ─► assemble_chess ─► validate_chess
"""
