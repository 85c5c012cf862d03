"""What of a build's options changes the bytes: the one place that says so.

In: options. Out: the `config` section of the manifest. No paths, no worker counts, nothing that only decides whether a
build goes on (rejects, duplicates): two builds with equal config and input must give equal files.
"""

from typing import Any

from spanloom.families.harmony import source, tokenizer
from spanloom.families.harmony.caps import Caps
from spanloom.split import split_rule
from spanloom.supervision import ALIGNMENT
from spanloom.tokenizers.o200k.asset import ASSET_SHA256

FAMILY = "synth_kd"
SPLIT_RULE = split_rule(source.ID_COLUMN)
ARRAY_DTYPES = {"tokens": "int32", "lossmask": "uint8", "span": "uint8"}
"""File name part → dtype of its `.bin`."""


def dataset_config(*, shards: int, caps: Caps, valid_fraction: float) -> dict[str, Any]:
    """The config of a SYNTH KD dataset, as its manifest records and hashes it."""
    return {
        "input_schema": source.SCHEMA_VERSION,
        "shards": shards,
        "caps": caps.as_dict(),
        "split_rule": SPLIT_RULE,
        "valid_fraction": valid_fraction,
        "tokenizer_sha256": ASSET_SHA256,
        "eod": tokenizer.EOD,
        "alignment": ALIGNMENT,
        "arrays": ARRAY_DTYPES,
    }
