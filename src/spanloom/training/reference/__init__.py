"""The reference training run: `python -m spanloom.training.reference --root ROOT …`.

__main__   the run
model      a small GPT
stream     the samples of a step
schedule   one step
optimizer  its update
groups     the loss by a column of the rows
"""
