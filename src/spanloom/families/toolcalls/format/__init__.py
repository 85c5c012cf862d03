"""What a sample is.

control    the control strings of the format
tables     subtypes and weights
tools      registries of tools
calls      the calls in the text of a turn
turns      messages of others → ours
ids        ids from contents
findings   what a sample can be found wrong by: codes, their severity and order
schema     the JSON Schema of a sample
source     files of samples, line by line
rendering  a sample → text, and where its answer is
"""
