"""Commands for every dataset.

look    validate, inspect, stats, manifest, and the step of validation
export  for trainers: export, plan, fetch, blend
"""
