"""Paths and names of a dataset's files below its root, defined only here.

    ROOT/manifest.json                       the commit marker, see `manifest`
    ROOT/SPLIT/shard_NN_ARRAY.{bin,idx}      one IndexedDataset for each array
    ROOT/SPLIT/shard_NN_rows.parquet         a row for each sequence
    ROOT/rejects/shard_NN.jsonl              rejected rows
    ROOT/tokenizer.json                      the tokenizer, if the dataset contains it
    ROOT/model/tokenizer.json                the tokenizer, if the dataset contains a model's files

In: root, split, number of the shard, name of the array. Out: paths.
"""

from collections.abc import Mapping
from functools import lru_cache
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


@lru_cache(maxsize=256)  # asked for each document that is read
def array_prefix(root: Path, split: str, shard: int, array: str) -> Path:
    """`ROOT/train/shard_03_tokens`, the path of `.bin` and `.idx` without the suffix."""
    return root / split / f"{shard_name(shard)}_{array}"


def array_prefixes(root: Path, split: str, shard: int, arrays: Mapping[str, str]) -> Prefixes:
    """The prefixes of all arrays. `arrays`: name → dtype, as in a manifest."""
    return {name: (array_prefix(root, split, shard, name), np.dtype(dtype)) for name, dtype in arrays.items()}


def rows_file(root: Path, split: str, shard: int) -> Path:
    """`ROOT/train/shard_03_rows.parquet`"""
    return root / split / f"{shard_name(shard)}_rows.parquet"


def rejects_file(root: Path, shard: int) -> Path:
    """`ROOT/rejects/shard_03.jsonl`"""
    return root / REJECTS / f"{shard_name(shard)}.jsonl"


def tokenizer_at(root: Path, tokenizer: Path | None) -> Path | None:
    """`tokenizer` if it is given; otherwise the dataset's own tokenizer, or None if it contains none."""
    if tokenizer is not None:
        return tokenizer
    places = (root / TOKENIZER_NAME, root / MODEL_FOLDER / TOKENIZER_NAME)
    return next((place for place in places if place.is_file()), None)


def open_arrays(root: Path, split: str, shard: int, arrays: Mapping[str, str]) -> ShardReader:
    """The arrays of one split of one shard, read with NumPy only. Raises ArtifactError naming an invalid file."""
    return open_shard_reader(array_prefixes(root, split, shard, arrays))


def hub_split(split: str) -> str:
    """Spanloom's name of a split → Hugging Face's: `valid` → `validation`."""
    return {VALID: "validation"}.get(split, split)
