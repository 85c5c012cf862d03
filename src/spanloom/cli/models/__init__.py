"""`spanloom model …`, `spanloom build --model`, and the step of its pipeline.

commands  probe, sample, fetch
build     the options of a build for a model
steps     the step of the pipeline
audit     `spanloom audit`: checks any token dataset against a model
"""
