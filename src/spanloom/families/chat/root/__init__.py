"""A dataset of packed chat on disk.

blocks      finished blocks as they are there
vocabulary  what each token stands for, for people who look at blocks
"""
