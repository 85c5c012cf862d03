"""Conversations of a source → documents of tokens, in parts that workers make.

rules     the options that decide the bytes; a model's folder loaded under them
declared  a run that is not proven: the user declares what the model writes
made      a conversation → its documents with mask, spans and row; or why it is refused
parts     batches of rows → files of documents, which are kept if a build stops
"""
