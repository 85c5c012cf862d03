"""Finished blocks on disk: label-aligned arrays, and a row for each block.

In: blocks with their token-aligned loss mask. Out: the same as input for `SplitWriter`, passed to it.
"""

import numpy as np
import pyarrow as pa

from spanloom.dataset.split_writer import SplitWriter
from spanloom.families.chat.packing import Blocks
from spanloom.supervision import shift_to_labels

FAMILY = "packed_chat"
INPUT_SCHEMA = "chat_transcripts_v1"
SPLIT = "train"
SPAN_NAMES = ("context", "assistant")
"""There is one trained span, so the loss mask identifies it, and there is no span array."""

ARRAY_DTYPES = {"tokens": "int32", "lossmask": "uint8"}
"""File name part → dtype of its `.bin`."""

ABOUT_SCHEMA = pa.schema(
    [
        pa.field("injected_tokens", pa.int64(), nullable=False),
        pa.field("padding_tokens", pa.int64(), nullable=False),
        pa.field("conversations", pa.int64(), nullable=False),
    ]
)
"""Columns of a block's row: copies at its beginning, padding at its end, conversations that end in it (EOS)."""


def append_blocks(files: SplitWriter, blocks: Blocks, *, eos: int, padding: int = 0) -> None:
    """Appends N blocks of B tokens, and their rows. `padding`: number of padding tokens at the end of the last block.

    The loss mask is label-aligned on disk: position t belongs to token t + 1 of its block.

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
        conversations[-1] = int((blocks.input_ids[-1, : size - padding] == eos).sum())  # the pad id may be EOS
    about = [blocks.injected.astype(np.int64), padded, conversations]
    files.append_arrays(lengths, {"tokens": blocks.input_ids.reshape(-1), "lossmask": labels})
    files.append_rows(
        pa.RecordBatch.from_arrays(list(map(pa.array, about)), schema=ABOUT_SCHEMA),
        lengths,
        np.stack([size - trained, trained], axis=1),
    )
