"""The defaults of the trace family's options; constants and nothing else, since pipelines run this file by its path."""

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

HOST = "127.0.0.1"
PORT = 8000
TRACE_MAX_BYTES = 1_048_576
BATCH_MAX_BYTES = 67_108_864
BODIES_MAX_BYTES = 67_108_864
HEADER_SECONDS = 10.0
BODY_SECONDS = 30.0

STEP_REPRODUCIBLE: Literal["0", "1"] = "1"
