"""The steps of the chess pipeline, one module each: `run` on paths or URIs, and the metadata for Kubeflow.

    prepare_chess   a share of the files → their arrays
    assemble_chess  the inventories → a pending manifest
    validate_chess  validates the root and promotes its manifest

prepare_chess ×n ─► assemble_chess ─► validate_chess
"""
