"""`spanloom traces …`, and its steps.

ingest    sample, ingest
commands  list, show, delete, build
exports   export, validate, tokenize, serve
steps     `spanloom step …-traces`
options   shared options, and objects made from them
"""
