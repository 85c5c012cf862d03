"""`spanloom traces …`, and its steps.

commands  sample, ingest, list, show, delete, build, export, validate, tokenize, serve
steps     `spanloom step …-traces`
options   options that both share, and what is made of them
"""
