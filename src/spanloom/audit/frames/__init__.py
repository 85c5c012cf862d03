"""Frames: the message that each token belongs to, derived from the tokens.

grammar  a model's template → the tokens of its frames, found by rendering
tables   a grammar as lookup tables by token id
reading  documents → frames, runs, and the tokens that the model samples
"""
