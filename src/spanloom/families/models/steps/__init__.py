"""The step of the family, a module each.

tokenize_conversations  a source and a model's folder → a token dataset, not validated yet
"""
