"""Commands for any dataset.

look      validate, inspect
describe  stats, manifest show
export    export, plan, blend
"""
