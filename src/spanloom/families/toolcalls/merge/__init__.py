"""Many files of samples → one.

merged      the merge: without duplicates, in a seeded order
compatible  the merge of the original program, with its faults
spot_check  a few samples to read
"""
