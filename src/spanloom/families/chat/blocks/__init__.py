"""What packing looks at, as arrays.

stream  a stream of tokens: spans, slices
masks   a finished block → which of its tokens carry loss; targets
"""
