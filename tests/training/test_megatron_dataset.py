"""What training reads, held against a slow reference that walks the raw files, and against Megatron's own class."""

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset
from megatron.core.datasets.utils import Split

from spanloom.training.batch import split_wire
from spanloom.training.megatron_dataset import DatasetTokenizer, SpanGPTDataset, SpanWireGPTDataset
from support.megatron_options import config, open_dataset
from support.token_datasets import (
    EOD,
    TOKENIZER_SHA256,
    VOCAB_SIZE,
    random_shards,
    read_raw,
    write_dataset,
    write_manifest,
)

LENGTHS = [[5, 1, 40, 2, 17, 9, 3, 30], [64, 3, 3, 21], [2, 2, 11, 70, 1]]
"""Documents of three shards: shorter and longer than a sequence, some of EOD alone."""


def check_against_raw(dataset: GPTDataset, prefix: Path, sequence_length: int) -> int:
    """Every sample against the raw files. Which documents come when is upstream's; cuts and shifts are worked out here.

    Returns how many samples were compared.
    """
    documents = read_raw(prefix)
    order = dataset.document_index.tolist()
    times = len(order) // len(documents)
    assert sorted(order) == sorted(list(range(len(documents))) * times), "every document, once an epoch"
    stream = {
        name: np.concatenate([getattr(documents[number], name) for number in order])
        for name in ("tokens", "lossmask", "span")
    }
    for index in range(len(dataset)):
        first = int(dataset.shuffle_index[index]) * sequence_length
        here, there = slice(first, first + sequence_length), slice(first + 1, first + 1 + sequence_length)
        item = dataset[index]
        expected = {
            "tokens": stream["tokens"][here],
            "labels": stream["tokens"][there],
            "loss_mask": stream["lossmask"][here],
            "span_id": stream["span"][here],
        }
        missing = sequence_length - expected["labels"].size
        for name, values in expected.items():
            want = values.tolist() + [0] * (sequence_length - values.size)
            if name in ("loss_mask", "span_id") and missing:
                want[sequence_length - missing :] = [0] * missing  # padded labels carry no loss
            assert item[name].tolist() == want, (index, name)
    return len(dataset)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    splits = {"train": random_shards(0, LENGTHS), "valid": random_shards(1, [[8, 1, 30], [3, 12], [40]])}
    return write_dataset(tmp_path_factory.mktemp("small") / "root", splits)


@pytest.mark.parametrize("sequence_length", [2, 7, 16, 61])
@pytest.mark.parametrize("seed", [0, 7])
def test_every_sample_is_that_of_the_slow_reference(
    root: Path, tmp_path: Path, sequence_length: int, seed: int
) -> None:
    for shard, lengths in enumerate(LENGTHS):
        prefix = root / f"train/shard_{shard:02d}_tokens"
        in_an_epoch = (sum(lengths) - 1) // sequence_length
        options = config(tmp_path, sequence_length, random_seed=seed)
        for epochs in (1, 2, 3):
            # So many samples that they begin, but do not fill, the last epoch.
            wanted = None if epochs == 1 else (epochs - 1) * in_an_epoch + 1
            dataset = open_dataset(prefix, options, wanted)
            assert check_against_raw(dataset, prefix, sequence_length) >= (wanted or in_an_epoch) > 0


@pytest.mark.parametrize("sequence_length", [2, 7, 16])
def test_a_last_partial_sample_is_padded_without_loss(root: Path, tmp_path: Path, sequence_length: int) -> None:
    for shard, tokens in enumerate((39, 15, 40)):
        prefix = root / f"valid/shard_{shard:02d}_tokens"
        for dropped in (True, False):
            options = config(tmp_path, sequence_length, drop_last_partial_validation_sequence=dropped)
            dataset = open_dataset(prefix, options, split=Split.valid) if (tokens - 1) // sequence_length else None
            if dataset is not None:
                whole, rest = divmod(tokens - 1, sequence_length)
                assert check_against_raw(dataset, prefix, sequence_length) == whole + (not dropped and rest > 0)


def test_the_real_sample_has_no_difference(real_sample: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(real_sample / "expected", root)
    o200k = {"name": "o200k_harmony", "sha256": "44" * 32, "vocab_size": 201_088, "eod": 199_999}
    write_manifest(root, shards=4, tokenizer=o200k)
    samples = 0
    for sequence_length in (128, 1024):
        options = config(tmp_path / "cache", sequence_length, tokenizer=DatasetTokenizer(**o200k))
        for split in (Split.train, Split.valid):
            for shard in range(4):
                prefix = root / split.name / f"shard_{shard:02d}_tokens"
                samples += check_against_raw(open_dataset(prefix, options, split=split), prefix, sequence_length)
    assert samples > 3000


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("extra", [True, False])
def test_tokens_labels_and_positions_are_those_of_the_stock_class(
    root: Path, tmp_path: Path, resets: bool, extra: bool
) -> None:
    for shard in range(3):
        prefix = root / f"train/shard_{shard:02d}_tokens"
        options = config(
            tmp_path,
            13,
            reset_position_ids=resets,
            reset_attention_mask=resets,
            create_attention_mask=True,
            add_extra_token_to_sequence=extra,
        )
        ours = open_dataset(prefix, options, 30)
        stock = open_dataset(prefix, options, 30, kind=GPTDataset)
        assert len(ours) == len(stock) >= 30
        for index in [*range(len(ours)), None]:
            mine, theirs = ours[index], stock[index]
            assert mine.keys() - {"span_id"} == theirs.keys()
            for key in theirs.keys() - {"loss_mask"}:
                assert mine[key].dtype == theirs[key].dtype
                assert torch.equal(mine[key], theirs[key]), (index, key)
            assert mine["loss_mask"].dtype == theirs["loss_mask"].dtype
            if index is None:
                assert not mine["loss_mask"].any()
                assert not mine["span_id"].any()
            if not extra:
                assert mine["loss_mask"][-1] == mine["span_id"][-1] == 0, "the last label is not in the sample"


def test_end_of_document_survives_a_tokenizer_that_pads_with_it(root: Path, tmp_path: Path) -> None:
    tokenizer = DatasetTokenizer(name="test", sha256=TOKENIZER_SHA256, vocab_size=VOCAB_SIZE, eod=EOD, pad=EOD)
    options = config(tmp_path, 7, tokenizer=tokenizer, allow_ambiguous_pad_tokens=True)
    prefix = root / "train/shard_00_tokens"
    with pytest.warns(UserWarning, match="pad token"):
        dataset = open_dataset(prefix, options)
    check_against_raw(dataset, prefix, 7)
    with pytest.warns(UserWarning, match="pad token"):
        stock = open_dataset(prefix, options, kind=GPTDataset)
    assert not any((stock[index]["tokens"] == EOD).any() for index in range(len(stock))), "what the stock class does"


@pytest.mark.parametrize("mmap", [True, False])
def test_a_dataset_survives_the_way_to_a_worker_process(root: Path, tmp_path: Path, mmap: bool) -> None:
    prefix = root / "train/shard_01_tokens"
    dataset = pickle.loads(pickle.dumps(open_dataset(prefix, config(tmp_path, 7, mmap_bin_files=mmap))))
    assert check_against_raw(dataset, prefix, 7) == 12


def test_the_wire_carries_the_span_in_the_mask(root: Path, tmp_path: Path) -> None:
    prefix, options = root / "train/shard_00_tokens", config(tmp_path, 16)
    plain, wired = open_dataset(prefix, options), open_dataset(prefix, options, kind=SpanWireGPTDataset)
    for index in range(len(plain)):
        item, wire = plain[index], wired[index]
        assert "span_id" not in wire
        mask, span = split_wire(wire["loss_mask"])
        assert torch.equal(mask, item["loss_mask"])
        assert torch.equal(span, item["span_id"])  # in these datasets no context is trained
        assert wire["loss_mask"].unique().tolist() == sorted({float(value) for value in item["span_id"]})


@pytest.fixture(scope="module")
def alone() -> Iterator[None]:
    """A process group of one: BlendedDataset asks for its rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
class TestBlends:
    """The laws of Megatron's builder, with our class in it and, for the same blend, the stock one."""

    def build(self, kind: type[GPTDataset], cache: Path, blends: list[Any], sizes: list[int | None]) -> list[Any]:
        options = config(cache, 7, blend_per_split=blends)
        return list(BlendedMegatronDatasetBuilder(kind, sizes, lambda: True, options).build())

    def prefixes(self, root: Path, split: str) -> list[str]:
        return [str(root / split / f"shard_{shard:02d}_tokens") for shard in range(3)]

    def test_a_blend_draws_by_weight_and_is_as_long_as_asked(self, root: Path, tmp_path: Path) -> None:
        blend = (self.prefixes(root, "train"), [1.0, 2.0, 5.0])
        train, valid, test = self.build(SpanGPTDataset, tmp_path, [blend, None, None], [400, None, None])
        assert valid is test is None
        assert len(train) == 400
        drawn = np.bincount([train[index]["dataset_id"] for index in range(400)])
        assert np.abs(drawn - [50, 100, 250]).max() <= 1

    def test_it_is_the_stock_blend_sample_by_sample(self, root: Path, tmp_path: Path) -> None:
        blends = [(self.prefixes(root, split), [3.0, 1.0, 2.0]) for split in ("train", "valid")]
        ours = self.build(SpanGPTDataset, tmp_path / "a", [*blends, None], [100, 30, None])
        stock = self.build(GPTDataset, tmp_path / "b", [*blends, None], [100, 30, None])
        for mine, theirs in zip(ours[:2], stock[:2], strict=True):
            assert len(mine) == len(theirs)
            for index in range(len(mine)):
                assert mine[index]["dataset_id"] == theirs[index]["dataset_id"]
                assert torch.equal(mine[index]["tokens"], theirs[index]["tokens"])
                assert torch.equal(mine[index]["labels"], theirs[index]["labels"])

    def test_without_weights_and_size_it_is_one_epoch_of_every_shard(self, root: Path, tmp_path: Path) -> None:
        train, _, _ = self.build(
            SpanGPTDataset, tmp_path, [(self.prefixes(root, "train"), None), None, None], [None, None, None]
        )
        assert len(train) == sum((sum(lengths) - 1) // 7 for lengths in LENGTHS)
        seen = sorted((train[index]["dataset_id"], *train[index]["tokens"].tolist()) for index in range(len(train)))
        assert len({tuple(each) for each in seen}) == len(seen), "no sample twice"

    def test_the_cache_is_used_again(self, root: Path, tmp_path: Path) -> None:
        blend = (self.prefixes(root, "train"), [1.0, 1.0, 1.0])
        first = self.build(SpanGPTDataset, tmp_path, [blend, None, None], [50, None, None])[0]
        before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
        again = self.build(SpanGPTDataset, tmp_path, [blend, None, None], [50, None, None])[0]
        assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
        for index in range(50):
            assert torch.equal(first[index]["tokens"], again[index]["tokens"])
