"""The blocks of a finished dataset for torch: the samples that streaming gives, read from the disk."""

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from spanloom.errors import DatasetError
from spanloom.families.chat.block_dataset import BlockDataset
from spanloom.families.chat.loader import PackedChatDataset
from spanloom.families.chat.samples import Sample, collate
from support.chat_transcripts import MARKERS, token_records
from support.packed_datasets import write_packed
from support.token_datasets import random_shards, write_dataset

RECORDS = token_records(300)
B = 24


def same(left: list[Sample], right: list[Sample]) -> bool:
    return len(left) == len(right) and all(
        one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
        for one, other in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("post_training", [True, False])
def test_its_blocks_are_the_samples_of_the_stream(tmp_path: Path, post_training: bool) -> None:
    shards = [RECORDS[:200], RECORDS[200:]]
    write_packed(tmp_path / "root", shards, block_size=B, post_training=post_training)
    keys = {"position_ids": True, "cu_seqlens": True}
    blocks = BlockDataset(tmp_path / "root", **keys)
    streamed = [
        sample
        for shard in shards
        for sample in PackedChatDataset(shard, block_size=B, markers=MARKERS, post_training=post_training, **keys)
    ]
    assert same([blocks[index] for index in range(len(blocks))], streamed)
    assert same([blocks[-1]], streamed[-1:])
    with pytest.raises(IndexError):
        blocks[len(blocks)]


def test_loaders_shuffle_and_batch_it_in_worker_processes(tmp_path: Path) -> None:
    (written,) = write_packed(tmp_path / "root", [RECORDS[:200]], block_size=B)
    loader = DataLoader(
        BlockDataset(tmp_path / "root", cu_seqlens=True),
        batch_size=3,
        shuffle=True,
        num_workers=2,
        collate_fn=collate,
        multiprocessing_context="fork",  # no tokenizer is at work here
    )
    read = [row for batch in loader for row in batch["input_ids"].tolist()]
    assert sorted(read) == sorted(written.input_ids.tolist())
    assert read != written.input_ids.tolist()


def test_a_dataset_of_documents_is_refused(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "root", {"train": random_shards(0, [[5, 9]])})
    with pytest.raises(DatasetError, match="not packed in blocks"):
        BlockDataset(root)
