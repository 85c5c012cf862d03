"""What is done where a template cannot take a conversation as it is.

adapted   ids of calls, calls as text, texts apart from calls: the conversation is changed before it is proven
declared  a run that is not proven: the user declares what the model writes
"""
