"""Commands for any dataset.

look    validate, inspect, stats, manifest show
export  export, plan, blend
"""
