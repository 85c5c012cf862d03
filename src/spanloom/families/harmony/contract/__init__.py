"""The definition of Harmony datasets, as values and pure functions: from a source row to its documents.

profile       what differs between SYNTH KD and harmony_chat
messages      a conversation of any kind → the messages of a Harmony conversation
conversation  one row → its checked conversation
call_format   a call as the model emits it, and as servers show it
history       a conversation → its documents: the messages of each, and the assistant runs that it trains
shown         a document's tokens → its messages, for display
caps          limits on rows and tokens
config        the options that change the bytes
"""
