"""Conversations → transcripts.

source    JSON Lines and Parquet of many manners → messages of role and text
convert   conversations → transcripts, with the length filter
left_out  what of conversations does not reach their transcripts, counted
files     transcripts in files, and numbered as the stream that is packed takes them
places    transcripts and tokenizer at URIs, brought to this machine
"""
