"""Where the files of a dataset are below its root: the one place that spells their names.

    ROOT/manifest.json                       the commit marker, see `manifest`
    ROOT/SPLIT/shard_NN_ARRAY.{bin,idx}      one IndexedDataset for each array
    ROOT/SPLIT/shard_NN_rows.parquet         a row for each sequence
    ROOT/rejects/shard_NN.jsonl              rows that were set aside
    ROOT/tokenizer.json                      the tokenizer, where the dataset carries its own
    ROOT/model/tokenizer.json                the same, where it carries the files of a model

In: root, split, number of the shard, name of the array. Out: paths.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.megatron.reader import ShardReader, open_shard_reader
from spanloom.split import VALID

REJECTS = "rejects"
ROWS_GLOB = "shard_*_rows.parquet"
CARD_NAME = "README.md"
REPORT_JSON, REPORT_HTML = "report.json", "report.html"
TOKENIZER_NAME = "tokenizer.json"
MODEL_FOLDER = "model"
VIEW_NAMES = (REPORT_JSON, REPORT_HTML, CARD_NAME)
"""Files at a dataset's root that are neither data nor manifest; published before the manifest, if at all."""

Prefixes = dict[str, tuple[Path, np.dtype[Any]]]
"""Array name → (path without suffix, dtype)."""


def shard_name(shard: int) -> str:
    """`shard_03`"""
    return f"shard_{shard:02d}"


def array_prefix(root: Path, split: str, shard: int, array: str) -> Path:
    """`ROOT/train/shard_03_tokens`, of which `.bin` and `.idx` are the files."""
    return root / split / f"{shard_name(shard)}_{array}"


def array_prefixes(root: Path, split: str, shard: int, arrays: Mapping[str, str]) -> Prefixes:
    """The prefixes of all arrays. `arrays`: name → dtype, as a manifest has them."""
    return {name: (array_prefix(root, split, shard, name), np.dtype(dtype)) for name, dtype in arrays.items()}


def rows_file(root: Path, split: str, shard: int) -> Path:
    """`ROOT/train/shard_03_rows.parquet`"""
    return root / split / f"{shard_name(shard)}_rows.parquet"


def rejects_file(root: Path, shard: int) -> Path:
    """`ROOT/rejects/shard_03.jsonl`"""
    return root / REJECTS / f"{shard_name(shard)}.jsonl"


def tokenizer_at(root: Path, tokenizer: Path | None) -> Path | None:
    """The tokenizer that was named; else the one that the dataset carries, where it carries one."""
    if tokenizer is not None:
        return tokenizer
    places = (root / TOKENIZER_NAME, root / MODEL_FOLDER / TOKENIZER_NAME)
    return next((place for place in places if place.is_file()), None)


def open_arrays(root: Path, split: str, shard: int, arrays: Mapping[str, str]) -> ShardReader:
    """The arrays of one split of one shard, read with numpy alone. Raises ArtifactError naming the file."""
    return open_shard_reader(array_prefixes(root, split, shard, arrays))


def hub_split(split: str) -> str:
    """Our name of a split → Hugging Face's."""
    return {VALID: "validation"}.get(split, split)
