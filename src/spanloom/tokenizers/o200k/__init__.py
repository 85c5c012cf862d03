"""The o200k vocabulary, which more than one family's tokens are of.

asset       the pinned file: where it is, and whether it is the right one
fetch       set-up only: brings it from the network
encoder     plain text → tokens, fast and exact
vocabulary  token → bytes
staging     the asset at a URI, brought to this machine
loading     the encoder's tables, loaded in the background
"""
