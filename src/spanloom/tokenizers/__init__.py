"""Tokenizers that more than one family's tokens are of.

o200k   the o200k vocabulary: its pinned asset, the encoder, token → bytes
"""
