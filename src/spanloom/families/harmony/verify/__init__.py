"""Whether a finished dataset is right, without what rendered and wrote it.

spans      spans read off finished tokens alone
documents  what must hold in every document on disk
content    what the manifest says
reference  one row rendered the slow way
rules      which rows may be refused, and why, a second time
texts      the texts of a row encoded by a second tokenizer
any_model  a row of `conversations_v1` as the messages of Harmony that it must become
source     a dataset checked against its source
"""
