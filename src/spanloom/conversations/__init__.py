"""Chat data of any form → conversations, whatever model they are made ready for. It knows no family.

turns     what a record holds, whatever its form; every reason to refuse it; what options leave out
tools     definitions of functions, and calls
markup    markup that texts hold, and the option that reads each; reasoning in tags
call_tags  calls that texts write in a style of their own
flags     what a message says of itself about training
blocks    blocks of a content that are messages of their own
messages  one message → turns: its role, reasoning, text, calls
conversation  a whole conversation, and its JSON: the rows of `conversations_v1`
arranged  a record → the conversation that is stored of it
outcomes  a record as it was read; what became of records: counted, left out, or refused
ids       whether an id is new
runs      where the assistant answers: runs of its messages, the last turn
forms/    which form a record has; a record → turns, instructions, tools
source/   the folder of conversations that datasets are built from
"""
