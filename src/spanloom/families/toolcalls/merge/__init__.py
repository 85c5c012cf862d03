"""Many files of samples → one.

merged      as it should be: without duplicates, in a seeded order
compatible  as the original program does it
spot_check  a few samples to look at
"""
