"""Samples of our own, and samples drawn from many.

sample    small samples of both splits
sampling  draws samples: a few to look at, or many by weight
"""
