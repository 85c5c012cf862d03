"""Frames: which message each token is of, read off the tokens.

grammar  a model's template → what its frames look like, found by rendering
tables   a grammar as lookup tables by token id
reading  documents → frames, runs, and which tokens the model samples
"""
