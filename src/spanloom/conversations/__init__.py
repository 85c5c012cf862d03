"""Chat data of any form → conversations, for any model. Knows no dataset family.

turns     the content of a record, independent of its form; all reasons to refuse one; what options leave out
tools     definitions of functions, and calls
markup    markup in texts, and the option that reads each; reasoning in tags
call_tags  calls written as tags in a text
flags     flags of a message that say whether it is trained
blocks    content blocks that become messages of their own
messages  one message → turns: its role, reasoning, text, calls
conversation  a whole conversation, and its JSON: the rows of `conversations_v1`
arranged  a record → its stored conversation
outcomes  a record as read; what happened to records: counted, left out, or refused
ids       detects duplicate ids
runs      runs of assistant messages, the last turn
forms/    which form a record has; a record → turns, instructions, tools
source/   the folder of conversations that datasets are built from
"""
