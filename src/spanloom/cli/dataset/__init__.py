"""Commands for every dataset.

look      validate, inspect, and the steps of validation
describe  stats, manifest
export    for trainers: export, plan, fetch, blend
"""
