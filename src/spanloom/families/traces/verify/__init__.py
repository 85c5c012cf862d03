"""Checks of exports and token datasets.

export     checks an exported file
documents  checks every document on disk
content    checks the manifest of a token dataset
source     checks a token dataset against the export of the same traces
"""
