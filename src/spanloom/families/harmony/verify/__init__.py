"""Checks a finished dataset, without the code that rendered and wrote it.

spans      spans derived from finished tokens alone
documents  the checks of every document on disk
content    the checks of the manifest
reference  one row rendered the slow way
rules      a second implementation of the rules that reject rows
texts      the texts of a row encoded by a second tokenizer
any_model  a row of `conversations_v1` as the messages of Harmony that it must become
source     a dataset checked against its source
"""
