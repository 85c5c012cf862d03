"""The arrays that packing works on.

stream  a stream of tokens: spans, slices
masks   a finished block → its loss mask and targets
"""
