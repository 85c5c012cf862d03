"""What Harmony datasets are, as values and pure functions: from a row of a source to the documents that it becomes.

spans         the spans, by name
profile       what differs between SYNTH KD and harmony_chat
source        their source folders, opened and staged
messages      a conversation of any kind → the messages of a Harmony conversation
conversation  one row → its checked conversation
call_format   a call as the model emits it, and as servers show it
history       a conversation → its documents: what each shows, and which run of it is trained
caps          limits on rows and tokens
config        what of the options changes the bytes
"""
