"""The o200k vocabulary, which several families share.

asset       the pinned file: its path, and the check of its hash
fetch       set-up only: downloads it
encoder     plain text → tokens, fast and exact
vocabulary  token → bytes
staging     the asset at a URI, copied to this machine
loading     the encoder's tables, loaded in the background
"""
