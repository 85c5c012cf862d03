"""`spanloom toolcalls …`, and its steps.

samples   validate, merge, sample, batches
commands  convert, serve, demo
tokens    audit, mask, export, tokenize
steps     `spanloom step …-toolcalls`
"""
