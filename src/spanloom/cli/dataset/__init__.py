"""Commands for every dataset.

look    validate, inspect, stats, manifest, and the step of validation
export  bringing a dataset to a trainer: export, plan, fetch, blend
"""
