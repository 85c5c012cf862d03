"""The steps of the pipeline: traces in the store, datasets of them, exports, token datasets.

    ingest_traces    JSON Lines → the store
    build_traces     a selection of the store → a manifest
    export_traces    a dataset → one export
    validate_traces  exports checked against their rules
    tokenize_traces  a dataset → a token dataset

Each module has `run`, the step over places, and `artifact_metadata`.
"""
