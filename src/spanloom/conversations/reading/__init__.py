"""One message of a record → its turns: the only reader of roles, texts, reasoning, calls, flags and markup.

messages   one message → turns: its role, reasoning, text, calls
contents   the content of a message → reasoning and texts; its other keys
parts      messages that a form writes as parts of one → one turn
blocks     content blocks that become messages of their own
harmony    messages of openai-harmony's JSON; an answer that is rendered text of Harmony
markup     markup in texts, and the option that reads each; reasoning in tags
tools      definitions of functions, and calls
call_tags  calls written as tags in a text
schemas    JSON Schemas of parameters: types by other names, padding
flags      flags of a message that say whether it is trained, and whether its end is the model's
verdicts   keys of a record that say that its answer is no good one
"""
