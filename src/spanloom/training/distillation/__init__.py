"""Training against a teacher.

loss     the divergence from a teacher's most probable tokens, per label
samples  a teacher's signals in samples of documents
"""
