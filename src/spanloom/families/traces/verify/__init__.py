"""Checks of exports and token datasets.

export     checks an exported file
documents  checks every document on disk
texts      checks the text of every document, read from its tokens
content    checks the manifest of a token dataset
source     checks a token dataset against the export of the same traces
"""
