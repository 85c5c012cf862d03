"""The forms of reasoning traces: recognises the form of a record; a record → traces.

form       the definition of a form; a trace as JSON; why a record gives no trace
mapped     columns that `--map` names
published  GSM8K, LIMO, OpenR1, PRM800K
chat       chat data with reasoning: R1's tags, OpenThoughts, s1K, `reasoning_content`
registry   all forms, in the order in which they are tried
"""
