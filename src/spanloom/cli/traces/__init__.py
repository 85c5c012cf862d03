"""`spanloom traces …`, and its steps.

commands  sample, ingest, list, show, delete, build, export, validate, tokenize, serve
steps     `spanloom step …-traces`
options   shared options, and objects made from them
"""
