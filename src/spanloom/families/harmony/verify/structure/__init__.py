"""What the tokens of finished documents tell by themselves.

messages       the messages of documents, read off their tokens
order          the order of messages, and what ends each
spans          spans derived from tokens alone
conversations  the documents of one conversation against each other
"""
