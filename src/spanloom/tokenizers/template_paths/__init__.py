"""Chat templates by paths: a template's text is a function of few tests, so that it is rendered once for each outcome.

A rendering with values that log every test yields a path: the tests with their outcomes, and what is written, as
constants and references such as "content of message i, trimmed". Another conversation with equal outcomes has the same
frame: it is walked and filled in without Jinja. A loop over messages has a trie of its own for its rounds, so that a
path is one of a message, not of a conversation. What no rule covers is fixed (the path holds for this very value) or
raises Unloggable. These modules know Jinja, and nothing of models or masks. Trust is not enough: who uses a path
compares it with a plain rendering.

expressions  what a rendering reads and tests, as tuples; their Python functions
reach        how far an expression looks, for walks of all prefixes of a conversation
recorder     the tests and texts of one rendering → tries
symbols      what all values that log have in common
scalars      texts and numbers that log
records      objects and lists that log
namespaces   namespaces, whose attributes are state
messages     the messages, and loops over them and over what they hold
rewriting    the syntax tree of a template, with calls in place of operators
environment  Jinja's sandbox for such values
prefixes     the paths of all prefixes of a conversation, in linear time
paths        learned by rendering, walked without it
"""
