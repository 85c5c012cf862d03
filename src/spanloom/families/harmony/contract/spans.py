"""The spans of a dataset of Harmony conversations: which part of the answer a token belongs to."""

SPAN_ANALYSIS, SPAN_FINAL, SPAN_COMMENTARY = 1, 2, 3
SPAN_NAMES = ("context", "analysis", "final")
"""`SPAN_NAMES[span_id]`: context has no loss; analysis is the reasoning; final is the answer."""
CHAT_SPAN_NAMES = (*SPAN_NAMES, "commentary")
"""The spans of harmony_chat: commentary is the text before a tool call, and the calls."""
