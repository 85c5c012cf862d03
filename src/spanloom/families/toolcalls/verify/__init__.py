"""The checks of a token dataset.

documents  every document on disk
content    the manifest
source     the dataset against its samples
"""
