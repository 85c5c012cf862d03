"""Chat data of any form → conversations, for any model. Knows no dataset family.

turns     the content of a record, independent of its form; all reasons to refuse one; what options leave out
reading/  one message → turns: role, texts, reasoning, calls, flags, markup
forms/    which form a record has; a record → turns, instructions, tools
arranged  a record → its stored conversation
conversation  a whole conversation, and its JSON: the rows of `conversations_v1`
trained   which spans are trained: the option `--train`
dialects  a conversation as a record of a trainer that applies the template itself
runs      runs of assistant messages, the last turn; what no chat template can hold
outcomes  a record as read; what happened to records: counted, left out, or refused
ids       detects duplicate ids
source/   the folder of conversations that datasets are built from
"""
