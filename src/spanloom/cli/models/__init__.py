"""`spanloom model …`, `spanloom audit`, and the step of its pipeline.

commands  probe, sample, fetch
steps     the step of the pipeline
audit     `spanloom audit`: checks any token dataset against a model
"""
