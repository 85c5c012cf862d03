"""The three ways to train on the same transcripts: streamed, from the disk, and through Megatron. One result."""

from pathlib import Path

import pytest
import torch

from spanloom.families.chat.block_dataset import BlockDataset
from spanloom.families.chat.loader import PackedChatDataset
from spanloom.families.chat.tokenizer import load_tokenizer
from spanloom.training.megatron_dataset import dataset_tokenizer
from spanloom.training.shard import read_content
from support.chat_datasets import packed
from support.megatron_options import config, open_dataset

B, SHARDS = 64, 2


@pytest.mark.parametrize("post_training", [True, False])
def test_a_packed_dataset_streams_and_reads_and_goes_through_megatron_the_same(
    tmp_path: Path, post_training: bool
) -> None:
    made = packed(tmp_path, post_training=post_training, block_size=B, shards=SHARDS)
    assert made.report.clean
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    streamed = [
        sample
        for rank in range(SHARDS)  # as many ranks as shards, so that records are dealt alike
        for sample in PackedChatDataset(
            tmp_path / "transcripts.jsonl",
            block_size=B,
            post_training=post_training,
            tokenizer=tokenizer,
            rank=rank,
            world_size=SHARDS,
        )
    ]
    read = BlockDataset(made.root)
    assert len(streamed) == len(read) > 20
    for index, sample in enumerate(streamed):
        block = read[index]
        assert sample.keys() == block.keys()
        assert all(torch.equal(sample[name], block[name]) for name in sample), index

    content = read_content(made.root)
    options = config(tmp_path / "cache", B, tokenizer=dataset_tokenizer(content), add_extra_token_to_sequence=False)
    through_megatron = []
    for shard in range(SHARDS):
        dataset = open_dataset(made.root / f"train/shard_{shard:02d}_tokens", options)
        for index in range(len(dataset)):
            item = dataset[index]
            targets = torch.where(item["loss_mask"][:-1] > 0, item["labels"][:-1], -100)
            through_megatron.append((item["tokens"].tolist(), targets.tolist()))
    wanted = [(sample["input_ids"].tolist(), sample["targets"].tolist()) for sample in streamed]
    assert sorted(through_megatron) == sorted(wanted)
    masked = sum(target == -100 for _, targets in wanted for target in targets)
    assert (masked > 0) is post_training
