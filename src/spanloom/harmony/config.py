"""What of a build's options changes the bytes: the one place that says so.

In: options. Out: the `config` section of the manifest. No paths, no worker counts, nothing that only decides whether a
build goes on (rejects, duplicates): two builds with equal config and input must give equal files.
"""

from typing import Any

from spanloom.harmony import source, tokenizer
from spanloom.harmony.caps import Caps
from spanloom.o200k.asset import ASSET_SHA256
from spanloom.split import SPLIT_RULE
from spanloom.supervision import ALIGNMENT

FAMILY = "synth_kd"
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
