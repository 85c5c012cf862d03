"""The defaults of the tool-call options: constants only, read by commands, steps and pipelines."""

from typing import Literal

SAMPLES_DIR = "data/circuit_breakers"
HARMFUL_DIR = "data/circuit_breakers/harmful"
RETAIN_DIR = "data/circuit_breakers/retain"
MERGED = "data/circuit_breakers/stage2/train.jsonl"
BATCHES = "data/circuit_breakers/stage2/train_batches.jsonl"

SEED = 42
DR_RATIO = 5.0
EVAL_FRACTION = 0.0
MIN_RATIO = 4.0
MIN_ADVERSARIAL_SAFE = 400
BENIGN_PER_HARMFUL = 5
AUDIT_LIMIT = 100
SAMPLES_PER_SOURCE = 10
ROW_GROUP_ROWS = 1024
VALID_FRACTION = 0.001
SPANS: Literal["answer", "parts"] = "answer"
EOD = "<|end_of_text|>"
CONTROL_TEXTS: Literal["refuse", "as-served", "text"] = "refuse"
"""What becomes of control tokens in texts of users, tools, system and tool definitions."""
DEEP = 64
B4_TOOLS = "b4_standard_v1"
BODY_MAX_BYTES = 64 << 20
