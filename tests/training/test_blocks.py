"""Packed blocks through Megatron: every sample of an epoch is one block of the disk, with its own targets."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder

from spanloom.dataset.blend import blend
from spanloom.errors import DatasetError
from spanloom.families.chat.packing import Blocks
from spanloom.training.megatron_dataset import DatasetTokenizer, SpanGPTDataset, SpanWireGPTDataset
from spanloom.training.pytorch import DocumentDataset, collate
from spanloom.training.shard import read_content
from support.chat_transcripts import VOCAB_SIZE, X, token_records
from support.megatron_options import config, open_dataset
from support.packed_datasets import write_packed
from support.token_datasets import TOKENIZER_SHA256, random_shards, write_dataset

B = 24
TOKENIZER = DatasetTokenizer(name="letters", sha256=TOKENIZER_SHA256, vocab_size=VOCAB_SIZE, eod=X)


def options(cache: Path, sequence_length: int = B, **changes: Any) -> Any:
    return config(cache, sequence_length, **{"tokenizer": TOKENIZER, "add_extra_token_to_sequence": False, **changes})


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Blocks]]:
    root = tmp_path_factory.mktemp("packed") / "root"
    return root, write_packed(root, [token_records(150, seed=0), token_records(90, seed=1)], block_size=B)


def as_trained(blocks: Blocks) -> list[tuple[list[int], list[int]]]:
    """Each block as inputs and targets, from the rule: the token after, or −100 where that has no loss."""
    return [
        (ids, [token if loss else -100 for token, loss in zip(ids[1:], mask[1:], strict=True)])
        for ids, mask in zip(blocks.input_ids.tolist(), blocks.loss_mask.tolist(), strict=True)
    ]


def as_read(item: dict[str, torch.Tensor]) -> tuple[list[int], list[int]]:
    assert item["loss_mask"][-1] == 0, "the last token's label is not in the block"
    assert set(item["loss_mask"].tolist()) <= {0.0, 1.0}
    targets = torch.where(item["loss_mask"][:-1] > 0, item["labels"][:-1], -100)
    return item["tokens"].tolist(), targets.tolist()


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("epochs", [1, 3])
def test_every_sample_of_an_epoch_is_a_block(
    packed: tuple[Path, list[Blocks]], tmp_path: Path, mmap: bool, epochs: int
) -> None:
    root, written = packed
    for shard, blocks in enumerate(written):
        wanted = None if epochs == 1 else epochs * len(blocks)
        dataset = open_dataset(root / f"train/shard_{shard:02d}_tokens", options(tmp_path, mmap_bin_files=mmap), wanted)
        assert len(dataset) == epochs * len(blocks)
        items = [dataset[index] for index in range(len(dataset))]
        assert all("span_id" not in item for item in items)
        assert sorted(map(as_read, items)) == sorted(as_trained(blocks) * epochs)


def test_the_order_is_another_one_and_a_batch_padding_sample_carries_no_loss(
    packed: tuple[Path, list[Blocks]], tmp_path: Path
) -> None:
    root, (blocks, _) = packed
    dataset = open_dataset(root / "train/shard_00_tokens", options(tmp_path))
    assert [dataset[index]["tokens"].tolist() for index in range(len(dataset))] != blocks.input_ids.tolist()
    assert not dataset[None]["loss_mask"].any()


def test_plain_packing_trains_every_label(tmp_path: Path) -> None:
    (blocks,) = write_packed(tmp_path / "root", [token_records(40)], block_size=16, post_training=False)
    dataset = open_dataset(tmp_path / "root/train/shard_00_tokens", options(tmp_path / "cache", 16))
    for index in range(len(dataset)):
        assert dataset[index]["loss_mask"].tolist() == [1.0] * 15 + [0.0]
    read = sorted(as_read(dataset[index])[0] for index in range(len(dataset)))
    assert read == sorted(blocks.input_ids.tolist())


@pytest.mark.parametrize(
    ("sequence_length", "extra"), [(B, True), (B - 1, False), (B + 1, False), (2 * B, False), (B - 1, True)]
)
def test_samples_that_would_straddle_blocks_are_refused(
    packed: tuple[Path, list[Blocks]], tmp_path: Path, sequence_length: int, extra: bool
) -> None:
    root, _ = packed
    given = options(tmp_path, sequence_length, add_extra_token_to_sequence=extra)
    with pytest.raises(DatasetError, match=r"(?s)blocks of 24.*sequence_length=24 and add_extra_token_to_sequence=Fal"):
        open_dataset(root / "train/shard_00_tokens", given)


def test_a_wire_without_spans_is_refused(packed: tuple[Path, list[Blocks]], tmp_path: Path) -> None:
    root, _ = packed
    with pytest.raises(DatasetError, match="no spans"):
        open_dataset(root / "train/shard_00_tokens", options(tmp_path), kind=SpanWireGPTDataset)


def test_the_blend_of_all_shards_is_one_epoch_of_all_blocks(packed: tuple[Path, list[Blocks]], tmp_path: Path) -> None:
    """Through Megatron's builder, as a trainer does it."""
    root, written = packed
    parts = blend(read_content(root), root, "train", sequence_length=B)
    assert len(parts.prefixes) == 2
    given = options(tmp_path, blend_per_split=[(list(parts.prefixes), None), None, None])
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        train, _, _ = BlendedMegatronDatasetBuilder(SpanGPTDataset, [None, None, None], lambda: True, given).build()
    finally:
        dist.destroy_process_group()
    expected = [each for blocks in written for each in as_trained(blocks)]
    assert sorted(as_read(train[index]) for index in range(len(train))) == sorted(expected)


def test_a_shard_of_a_single_block_is_in_the_blend_and_gives_its_sample(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (blocks,) = write_packed(root, [[[20] * B + [X]]], block_size=B)
    assert len(blocks) == 1
    parts = blend(read_content(root), root, "train", sequence_length=B)
    assert (len(parts.prefixes), parts.left_out) == (1, ())
    dataset = open_dataset(Path(parts.prefixes[0]), options(tmp_path / "cache"))
    assert [dataset[index]["tokens"].tolist() for index in range(len(dataset))] == [[20] * B]


def test_documents_of_one_token_less_than_a_sample_and_one_are_left_out_as_before(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "root", {"train": random_shards(0, [[B], [B + 1]])})
    parts = blend(read_content(root), root, "train", sequence_length=B)
    assert [Path(prefix).name for prefix in parts.prefixes] == ["shard_01_tokens"]


def test_a_document_is_a_block_for_other_trainers_too(packed: tuple[Path, list[Blocks]]) -> None:
    root, written = packed
    documents = DocumentDataset(root)
    blocks = [each for shard in written for each in as_trained(shard)]
    assert len(documents) == len(blocks)
    for index in random.Random(0).sample(range(len(blocks)), 40):
        assert as_read(documents[index]) == blocks[index]
    batch = collate([documents[0], documents[1]])
    assert batch.keys() == {"tokens", "labels", "loss_mask", "attention_mask"}
    assert np.array_equal(batch["tokens"].numpy(), written[0].input_ids[:2])
