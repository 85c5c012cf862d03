"""Conversations → tokens, loss mask and spans.

official      through openai-harmony alone: the authority
text_encoder  texts → tokens, through openai-harmony or the fast encoder
fast          through a table and the o200k encoder: the same bits
routes        selects one of the two renderers
audit         sampled rows of the fast route checked against the official one
part          one part of a shard rendered in one worker process
artifact      the parts that pass documents and ids between steps on one machine
packs         parts in a few large files, and the ids of a shard in one file
work          a rendered shard at a work place, with its manifest: passed between machines
clear         removes Spanloom's files from a work place
"""
