"""`spanloom model …`, and `spanloom build --model`.

commands  probe
build     the options of a build for a model
audit     `spanloom audit`: a token dataset of anybody held against a model
"""
