"""Which tokens of a conversation the model samples: proven for each assistant message, or refused under a class.

For each assistant message (a run), P is the text of the messages before it with the generation prompt, and F the text
of the messages through it. Three methods must agree.

refusals      the classes of refusals
fields        the texts of messages, numbered; words that replace them
traced        method A: each text of the run is in F once and whole, as given or trimmed
prefixes      method B: F begins with P, in characters and in tokens
controls      control tokens in texts of users and tools
context       texts of earlier messages and of tools must be in F
sentinels     method S: texts replaced by other words and put back give F again
turn_end      the stop token that ends the turn
spans         the span of each token of the completion
run           one run by A, B and S
documents     runs → documents: a document continues while a run's text begins the next run's P
conversation  a conversation → documents, or a refusal
"""
