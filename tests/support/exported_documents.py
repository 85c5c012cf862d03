"""The documents of a dataset as an export must have them, read by a plain loop without Spanloom.

In: the root of a dataset and a split. Out: each document's columns of `export --to parquet`.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq


def on_disk(root: Path, split: str) -> Iterator[dict[str, object]]:
    """The documents of a split, token-aligned by a plain loop, in the order of shards and sequences."""
    for tokens_file in sorted((root / split).glob("shard_*_tokens.bin")):
        name = tokens_file.name.removesuffix("_tokens.bin")
        index = tokens_file.with_suffix(".idx").read_bytes()
        lengths = np.frombuffer(index, dtype="<i4", count=int.from_bytes(index[18:26], "little"), offset=34)
        tokens = np.fromfile(tokens_file, dtype="<i4").tolist()
        mask = np.fromfile(tokens_file.with_name(f"{name}_lossmask.bin"), dtype=np.uint8).tolist()
        span = np.fromfile(tokens_file.with_name(f"{name}_span.bin"), dtype=np.uint8).tolist()
        ids = pq.read_table(tokens_file.with_name(f"{name}_rows.parquet"))["synth_id"].to_pylist()
        begin = 0
        for length, synth_id in zip(lengths.tolist(), ids, strict=True):
            document = tokens[begin : begin + length]
            learned = [0, *mask[begin : begin + length - 1]]
            yield {
                "input_ids": document,
                "labels": [token if on else -100 for token, on in zip(document, learned, strict=True)],
                "loss_mask": learned,
                "assistant_masks": learned,
                "span_id": [0, *span[begin : begin + length - 1]],
                "synth_id": synth_id,
            }
            begin += length
