"""`spanloom traces …`

ingest    ingest
commands  list, show, delete, build
exports   export, validate
"""
