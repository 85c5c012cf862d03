"""A trace as tokens.

tokenizer  a tokenizer.json, and its end-of-document token
tokens     a rendered trace → tokens with loss mask and span
"""
