"""`spanloom model …`, `spanloom audit`, and the step of its pipeline.

commands  probe, sample, fetch
steps     the step of the pipeline
audit     `spanloom audit`: checks any token dataset against a model
teacher   `spanloom teacher`: what a model thinks of the labels of a dataset
"""
