"""Consistent forgeries of Harmony datasets, of both families.

made      the honest datasets that are forged
messages  the messages of a document that a forgery changes
kinds     the list of forgeries, and what several of them need
masks     other masks and spans
tokens    other tokens
rows      other rows, and documents left out
manifest  another manifest
synth     the same of SYNTH KD
"""
