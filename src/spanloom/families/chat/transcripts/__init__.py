"""Conversations → transcripts.

source    JSON Lines and Parquet in many layouts → messages with role and text
convert   conversations → transcripts, with the length filter
left_out  counts of what does not reach the transcripts
files     transcripts in files, numbered in the order in which they are packed
sample    small conversations of our own
places    transcripts and tokenizer at URIs, copied to this machine
"""
