"""The arrays that packing works on.

markers  the control strings, their ids, and where they are in a stream
stream   a stream of tokens: spans, slices
masks    a finished block → its loss mask and targets
"""
