"""Chat data of any form → conversations, whatever model they are made ready for. It knows no family.

turns     what a record holds, whatever its form; every reason to refuse it; what options leave out
tools     definitions of functions, and calls
messages  one message → a turn: its role, reasoning, text, calls
forms     which form a record has; a record → turns, instructions, tools
outcomes  a record as it was read; what became of records: counted, or refused
ids       whether an id is new
runs      where the assistant answers: runs of its messages, the last turn
source/   the folder of conversations that datasets are built from
"""
