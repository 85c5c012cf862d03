"""The control strings of Llama 3.1's chat format, as they occur in samples.

In: nothing. Out: constants.
"""

PYTHON_TAG = "<|python_tag|>"
"""Precedes a tool call."""

EOM = "<|eom_id|>"
"""Ends a turn that is followed by a tool result."""

EOT = "<|eot_id|>"
"""Ends a turn."""

END_TOKENS = (EOM, EOT)

CONTROL_STRINGS = (
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    EOT,
    EOM,
    PYTHON_TAG,
)

ASSISTANT_HEADER = "<|start_header_id|>assistant<|end_header_id|>"

FENCE = "```"
"""Opens and closes a code block in Markdown."""

FORBIDDEN_PREFIXES = ("Action:", "ToolCall:", "Function:", "Tool:")
"""Prefixes that start a call in other formats."""
