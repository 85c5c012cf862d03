"""The step of the family.

tokenize_conversations  a source and a model's folder → a token dataset, not validated yet
"""
