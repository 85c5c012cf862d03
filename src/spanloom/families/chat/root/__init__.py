"""A dataset of packed chat on disk.

blocks      finished blocks as they stand there, and the config that a manifest records
vocabulary  what each token stands for, for people who look at blocks
"""
