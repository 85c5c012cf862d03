"""The defaults of the commands for every dataset, defined once. Only constants, no imports."""

from typing import Literal

DEEP = 64
"""Rows, or blocks of each shard, that validation rebuilds if it has the source."""

ALL_ROWS = 1 << 62
"""More rows than a source has."""

TOKENS_PER_FILE = 64 << 20
"""An exported file is closed once it holds this many tokens."""

SEQUENCE_LENGTH = 8192
"""Tokens of a row of an export with packed rows, if the documents are not blocks of one length."""

FormName = Literal["parquet", "trl", "axolotl", "llama-factory", "megatron-bridge"]
"""The forms of an export of a dataset."""

Trainer = Literal["trl", "axolotl", "ms-swift", "llama-factory", "automodel"]
"""The trainers whose dialect `export --to messages` writes."""
