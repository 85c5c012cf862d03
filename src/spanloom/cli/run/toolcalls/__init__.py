"""`spanloom toolcalls …`

samples   validate, merge, sample, batches
commands  convert
tokens    audit, mask, export
"""
