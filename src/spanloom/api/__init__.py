"""What `import spanloom` offers, and what the commands of the same names call.

building    `build`: a source → a validated dataset
converting  `convert`: chat data → a source
validating  `validate`: what is wrong with a dataset
documents   `open_dataset`: the documents of a dataset, without Megatron and torch
"""
