"""The forms in which chat data is written: which one a record has, and what of it means what.

keys           which keys of a record mean what: known names, and `--map`
form           what a form is; how text in a column is read
columns        a question and an answer in columns; earlier turns, texts beside them
message_lists  lists of messages with role and content, or from and value
preference     a chosen answer and a rejected one
beside         what a record holds beside its conversation and may not be left to metadata
unknown        what helps where a record has no known form
registry       all forms, in the order in which they are tried; a record → turns, instructions, tools
published/     forms of one vendor or one data set
"""

from spanloom.conversations.forms.form import Form
from spanloom.conversations.forms.keys import KeyMap, key_map
from spanloom.conversations.forms.registry import read_record, recognise

__all__ = ["Form", "KeyMap", "key_map", "read_record", "recognise"]
