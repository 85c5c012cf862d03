"""Conversations of a source → documents of tokens.

rules     the options that decide the bytes; a model's folder loaded under them
prover    conversations → documents or refusals: by paths, else by the full proof; the checks of the former
made      a conversation → its documents with mask, spans and row; or why it is refused
rows      a batch of rows → documents, and the refused rows, in pieces
"""
