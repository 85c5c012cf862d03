"""What a dataset may train: rules over tokens and masks, for validation and for the audit. No builder imports it.

grammar     the tokens that begin and end the messages of each role
tables      a grammar as lookup tables by token id
documents   documents as arrays
frames      documents → the message that each token belongs to, and the tokens that the model samples
beginnings  what a template always writes first
classes     the classes of findings: what each means, what to do
declared    findings that a dataset's options intend
judging     documents and the tokens that the model samples → findings
"""
