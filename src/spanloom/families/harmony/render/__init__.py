"""Conversations → tokens, loss mask and spans.

official      through openai-harmony alone: what counts
text_encoder  texts → tokens, through openai-harmony or the fast encoder
fast          through a table and the o200k encoder: the same bits
routes        one of the two
audit         sampled rows of the fast route held against the official one
part          one part of a shard rendered in one worker process
artifact      the artifact that carries documents and ids between steps
"""
