"""A dataset of packed chat on disk.

blocks      writes finished blocks
vocabulary  the text of each token, to show blocks to people
"""
