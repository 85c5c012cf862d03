"""Small finished datasets of packed blocks, for the tests of what reads them: token records in, a root out."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from spanloom.families.chat.packing import Blocks, pack
from support.chat_transcripts import MARKERS, VOCAB_SIZE, X
from support.token_datasets import TOKENIZER_SHA256, write_manifest, write_shard

MARKER_NAMES = ("eos", "system", "user", "assistant", "end")


def write_packed(
    root: Path, shards: Sequence[Sequence[list[int]]], *, block_size: int, post_training: bool = True
) -> list[Blocks]:
    """Packs each shard's records into `root` and returns the blocks, shard by shard."""
    written, packing = [], []
    for number, records in enumerate(shards):
        stream = [token for record in records for token in record]
        blocks, counts = pack(stream, block_size=block_size, markers=MARKERS, post_training=post_training)
        blocks = replace(blocks, input_ids=blocks.input_ids.astype(np.int32))
        labels = np.zeros_like(blocks.loss_mask)
        labels[:, :-1] = blocks.loss_mask[:, 1:]
        arrays = {"tokens": blocks.input_ids.reshape(-1), "lossmask": labels.reshape(-1)}
        write_shard(root, "train", number, np.full(len(blocks), block_size, dtype=np.int32), arrays)
        written.append(blocks)
        packing.append(asdict(counts))
    write_manifest(
        root,
        shards=len(shards),
        arrays={"tokens": "int32", "lossmask": "uint8"},
        span_names=["context", "assistant"],
        tokenizer={"name": "letters", "sha256": TOKENIZER_SHA256, "vocab_size": VOCAB_SIZE, "eod": X},
        family="packed_chat",
        packing=packing,
        config={
            "shards": len(shards),
            "block_size": block_size,
            "post_training": post_training,
            "strict_user": True,
            "keep_lossless": True,
            "pad_tail": None,
            "markers": {name: {"text": f"<|{name.upper()}|>", "id": getattr(MARKERS, name)} for name in MARKER_NAMES},
        },
    )
    return written
