"""Whether exports and token datasets are right.

export     what is wrong with an exported file
documents  what must hold in every document on disk
content    what the manifest of a token dataset says
"""
