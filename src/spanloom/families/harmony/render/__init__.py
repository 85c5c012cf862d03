"""Conversations → tokens, loss mask and spans.

official      through openai-harmony alone: the authority
text_encoder  texts → tokens, through openai-harmony or the fast encoder
fast          through a table and the o200k encoder: the same bits
routes        selects one of the two renderers
audit         sampled rows of the fast route checked against the official one
rows          a batch of source rows → documents, the rows about them, rejects
"""
