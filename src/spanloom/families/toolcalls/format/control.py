"""The control strings of Llama 3.1's chat format, as samples hold them.

In: nothing. Out: constants.
"""

PYTHON_TAG = "<|python_tag|>"
"""Is put before a tool call."""

EOM = "<|eom_id|>"
"""Ends a turn that a tool's result follows."""

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
"""Opens and closes a block of code in Markdown."""

FORBIDDEN_PREFIXES = ("Action:", "ToolCall:", "Function:", "Tool:")
"""What other formats begin a call with."""
