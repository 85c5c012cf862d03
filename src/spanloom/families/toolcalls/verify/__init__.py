"""The checks of a token dataset.

documents  every document on disk
frames     every document against the frame of its template
content    the manifest
source     the dataset against its samples
"""
