"""The spans of a dataset of Harmony conversations: which part of the answer a token belongs to."""

SPAN_ANALYSIS, SPAN_FINAL, SPAN_COMMENTARY = 1, 2, 3
SPAN_NAMES = ("context", "analysis", "final")
"""`SPAN_NAMES[span_id]`: context carries no loss; analysis is the reasoning; final is the answer."""
CHAT_SPAN_NAMES = (*SPAN_NAMES, "commentary")
"""Those of harmony_chat: commentary is text before a tool is called, and the calls."""
