"""Finished blocks as they stand on disk: label-aligned arrays, and a row for each block.

In: blocks with their token-aligned loss mask. Out: what `SplitWriter` takes; and the `config` that a manifest records.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.families.chat.markers import CONTROL_STRINGS, Markers
from spanloom.families.chat.packing import Blocks
from spanloom.supervision import ALIGNMENT, Lengths, shift_to_labels

FAMILY = "packed_chat"
INPUT_SCHEMA = "chat_transcripts_v1"
SPLIT = "train"
SPAN_NAMES = ("context", "assistant")
"""The loss mask says the span: there is one that is trained, so no array of its own tells it."""

ARRAY_DTYPES = {"tokens": "int32", "lossmask": "uint8"}
"""File name part → dtype of its `.bin`."""

ABOUT_SCHEMA = pa.schema(
    [
        pa.field("injected_tokens", pa.int64(), nullable=False),
        pa.field("padding_tokens", pa.int64(), nullable=False),
        pa.field("conversations", pa.int64(), nullable=False),
    ]
)
"""What a row says of its block: copies at its beginning, padding at its end, conversations that end in it (EOS)."""


@dataclass(frozen=True, kw_only=True)
class DiskBlocks:
    """N blocks of B tokens for the disk.

    lengths      int32 [N], all B
    arrays       tokens int32 [N·B]; lossmask uint8 [N·B], label-aligned: position t is about token t + 1 of its block
    span_tokens  int64 [N, 2], labels that are context and assistant
    about        a row a block, of `ABOUT_SCHEMA`
    """

    lengths: Lengths
    arrays: dict[str, npt.NDArray[Any]]
    span_tokens: npt.NDArray[np.int64]
    about: pa.RecordBatch


def disk_blocks(blocks: Blocks, *, eos: int, padding: int = 0) -> DiskBlocks:
    """Blocks for the disk. `padding` is how many tokens at the end of the last of them are padding.

    block S s E U u E A a E X   mask 0 0 0 0 0 0 1 1 1 0   →   lossmask 0 0 0 0 0 1 1 1 0 0
    """
    count, size = blocks.input_ids.shape
    lengths = np.full(count, size, dtype=np.int32)
    labels = shift_to_labels(blocks.loss_mask.reshape(-1), lengths)
    trained = labels.reshape(count, size).sum(axis=1, dtype=np.int64)
    padded = np.zeros(count, dtype=np.int64)
    padded[-1:] = padding
    conversations = (blocks.input_ids == eos).sum(axis=1, dtype=np.int64)
    if padding and count:
        conversations[-1] = int((blocks.input_ids[-1, : size - padding] == eos).sum())  # EOS may be what pads
    return DiskBlocks(
        lengths=lengths,
        arrays={"tokens": blocks.input_ids.reshape(-1), "lossmask": labels},
        span_tokens=np.stack([size - trained, trained], axis=1),
        about=pa.RecordBatch.from_arrays(
            [pa.array(blocks.injected.astype(np.int64)), pa.array(padded), pa.array(conversations)], schema=ABOUT_SCHEMA
        ),
    )


def packing_config(
    *,
    shards: int,
    block_size: int,
    post_training: bool,
    strict_user: bool,
    keep_lossless: bool,
    pad_tail: int | None,
    records: str,
    markers: Markers,
    tokenizer_sha256: str,
) -> dict[str, Any]:
    """The config of a packed chat dataset, as its manifest records and hashes it: all that decides the bytes."""
    ids = (markers.pad, *markers.ids)
    return {
        "input_schema": INPUT_SCHEMA,
        "shards": shards,
        "block_size": block_size,
        "post_training": post_training,
        "strict_user": strict_user,
        "keep_lossless": keep_lossless,
        "pad_tail": pad_tail,
        "records": records,
        "markers": {
            text.strip("<|>").lower(): {"text": text, "id": token}
            for text, token in zip(CONTROL_STRINGS, ids, strict=True)
            if token is not None
        },
        "tokenizer_sha256": tokenizer_sha256,
        "alignment": ALIGNMENT,
        "arrays": ARRAY_DTYPES,
    }
