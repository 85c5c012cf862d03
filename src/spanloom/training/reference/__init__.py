"""The reference training run: `python -m spanloom.training.reference --root ROOT …`.

__main__   the run
model      a small GPT
stream     which samples a step trains on
schedule   one step
optimizer  its update
groups     the loss by a column of the row table
"""
