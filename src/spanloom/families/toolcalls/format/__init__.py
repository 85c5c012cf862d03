"""The sample format.

control    the control strings of the format
tables     subtypes and weights
tools      registries of tools
calls      the calls in the text of a turn
ids        ids from contents
findings   the codes of findings, their severity and order
schema     the JSON Schema of a sample
source     files of samples, line by line
rendering  a sample → text, and the span of its answer
"""
