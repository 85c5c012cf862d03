"""`spanloom toolcalls …`, and its steps.

commands  convert, validate, merge, sample, batches, serve, demo
tokens    audit, mask, export, tokenize
steps     `spanloom step …-toolcalls`
options   options shared by several commands
"""
