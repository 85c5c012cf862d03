"""Samples → files for trainers.

tokenizer       a tokenizer.json → tokens and their offsets
masks           the tokens of the answer
parts           prose, calls and arguments within the answer
batches         one harmful sample and its retain samples
training_files  rows of samples and of batches
"""
