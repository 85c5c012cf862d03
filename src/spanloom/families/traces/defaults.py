"""The defaults of the trace family's options; constants only, since pipelines run this file by its path."""

from typing import Literal

ROOT = "data/traces"
SAMPLE_TRACES = 60
IDS: Literal["content", "random"] = "content"
MAX_STEP_CHARACTERS = 20_000
LIMIT = 100
STRATEGY: Literal["latest", "random"] = "latest"
FORMAT: Literal["trace", "tunix_sft", "training_example", "messages"] = "trace"
CONTROL_TOKENS: Literal["verbatim", "reject", "escape"] = "verbatim"
PROTECT_METADATA = True

TOKENIZE_FORMAT: Literal["tunix_sft", "training_example"] = "tunix_sft"
TOKENIZE_CONTROL_TOKENS: Literal["verbatim", "reject", "escape"] = "reject"
VALID_FRACTION = 0.001
DEEP = 64

TRACE_MAX_BYTES = 1_048_576
TRACE_BYTES = (1024, 10_485_760)
"""The smallest and the largest allowed `TRACE_MAX_BYTES`."""
BATCH_MAX_BYTES = 67_108_864

STEP_REPRODUCIBLE: Literal["0", "1"] = "1"
