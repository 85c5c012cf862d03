"""Whether a token dataset is right.

documents  what must hold in every document on disk
content    what the manifest says
source     a dataset checked against its samples
"""
