"""Token datasets of samples in training: harmful roots, weights, pairs; of Megatron and of PyTorch alone."""

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from conftest import Cli
from spanloom.dataset import manifest
from spanloom.dataset.root.layout import rows_file
from spanloom.errors import DatasetError
from spanloom.families.toolcalls.loader import PairedLoader
from spanloom.families.toolcalls.samples.sampling import WeightedSampler
from spanloom.training.megatron_dataset import DatasetTokenizer
from spanloom.training.packed import PackedDataset
from spanloom.training.packed_megatron import PackedGPTDataset, packed_datasets
from spanloom.training.pytorch import DocumentDataset, StreamDataset, collate
from spanloom.training.samples.document_weights import document_weights
from spanloom.training.shard import open_shard
from spanloom.training.weights import WeightedCount, weighted_loss
from support.megatron_options import config, open_dataset, packing_config
from support.toolcall_datasets import documents, make, rows
from support.toolcall_samples import harmful, retain, write_samples

EOT, EOD = "<|eot_id|>", "<|end_of_text|>"


def test_a_harmful_root_is_opened_only_when_it_is_said(built: Path, cli: Cli, tmp_path: Path) -> None:
    root = built / "harmful"
    planned = cli("plan", root, "--sequence-length", 64, "--out", tmp_path / "plan", "-q")
    assert planned.returncode == 0, planned.stderr
    for opened in (
        lambda: open_shard(root / "train/shard_00_tokens"),
        lambda: DocumentDataset(root),
        lambda: StreamDataset(root, sequence_length=8),
        lambda: PairedLoader(built),
        lambda: PackedDataset(tmp_path / "plan"),
    ):
        with pytest.raises(DatasetError, match="allow_harmful=True"):
            opened()
    assert len(DocumentDataset(root, allow_harmful=True)) > 0
    assert len(StreamDataset(root, sequence_length=8, allow_harmful=True)) > 0
    assert len(DocumentDataset(built / "retain")) > 0
    packed = PackedDataset(tmp_path / "plan", allow_harmful=True)
    trained = sum(int(packed[number]["loss_mask"].sum()) for number in range(len(packed)))
    documents = DocumentDataset(root, allow_harmful=True)
    assert trained == sum(int(documents[number]["loss_mask"].sum()) for number in range(len(documents))) > 0


def test_megatron_opens_a_harmful_root_only_when_it_is_said(built: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="allow_harmful=True"):
        open_dataset(built / "harmful/train/shard_00_tokens", config(tmp_path, 8))


@pytest.mark.parametrize("name", ["harmful", "retain"])
def test_megatrons_dataset_and_the_weighted_loss_run_on_a_root(built: Path, tmp_path: Path, name: str) -> None:
    """Samples of Megatron's dataset hold several documents: mask and weight of each label against the raw files."""
    root = built / name
    said = manifest.read(root).content.tokenizer
    options = config(
        tmp_path,
        200,
        tokenizer=DatasetTokenizer(name=said.name, sha256=said.sha256, vocab_size=said.vocab_size, eod=said.eod),
    )
    options.allow_harmful = options.document_weights = True
    prefix = root / "train/shard_00_tokens"
    dataset = open_dataset(prefix, options)
    weights = DocumentDataset(root, weights=True, allow_harmful=True).weights
    order = dataset.document_index.tolist()
    on_disk = documents(root, "train")
    stream = {
        "tokens": [token for at in order for token in on_disk[at][0]],
        "loss_mask": [value for at in order for value in on_disk[at][1]],
        "weight": [weights[at] for at in order for _ in on_disk[at][0]],
    }
    assert len(dataset) > 1
    items = [dataset[index] for index in range(len(dataset))]
    for index, item in enumerate(items):
        first = int(dataset.shuffle_index[index]) * 200
        for key, values_of_all in stream.items():
            assert item[key].tolist() == pytest.approx(values_of_all[first : first + 200]), (index, key)
    batch = torch.utils.data.default_collate(items)
    losses = torch.rand(batch["tokens"].shape, generator=torch.Generator().manual_seed(1))
    count = WeightedCount.of(batch["loss_mask"], batch["weight"])
    both = list(zip(stream["weight"], stream["loss_mask"], strict=True))
    taken = [int(dataset.shuffle_index[index]) * 200 + at for index in range(len(items)) for at in range(200)]
    below = sum(both[at][0] * both[at][1] for at in taken)
    above = sum(
        both[at][0] * both[at][1] * float(loss) for at, loss in zip(taken, losses.flatten().tolist(), strict=True)
    )
    assert count.total.item() == pytest.approx(below, rel=1e-5)
    loss = weighted_loss(losses, batch["loss_mask"], batch["weight"], count)
    assert loss.item() == pytest.approx(above / below, rel=1e-5)
    assert "weight" not in open_dataset(prefix, replaced(options, document_weights=False))[0]


def test_megatrons_samples_of_a_plan_are_of_a_harmful_root_only_when_it_is_said_and_have_no_weights(
    built: Path, cli: Cli, tmp_path: Path
) -> None:
    root, plan = built / "harmful", tmp_path / "plan"
    planned = cli("plan", root, "--sequence-length", 64, "--out", plan, "-q")
    assert planned.returncode == 0, planned.stderr
    said = manifest.read(root).content.tokenizer
    tokenizer = DatasetTokenizer(name=said.name, sha256=said.sha256, vocab_size=said.vocab_size, eod=said.eod)
    options = packing_config(tmp_path, 64, tokenizer=tokenizer)
    with pytest.raises(DatasetError, match="allow_harmful=True"):
        packed_datasets(plan, options, [None] * 3, kind=PackedGPTDataset)
    options.allow_harmful = True
    train = packed_datasets(plan, options, [None] * 3, kind=PackedGPTDataset)[0]
    assert len(train) == len(PackedDataset(plan, allow_harmful=True))
    options.document_weights = True
    with pytest.raises(DatasetError, match="samples of a plan carry no weights"):
        packed_datasets(plan, options, [None] * 3, kind=PackedGPTDataset)


def replaced(options: Any, **changes: Any) -> Any:
    other = copy.copy(options)
    for key, value in changes.items():
        setattr(other, key, value)
    return other


def test_the_rows_of_other_families_have_no_weights(tmp_path: Path) -> None:
    path = rows_file(tmp_path, "train", 0)
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"sequence": [0]}), path)
    with pytest.raises(DatasetError, match="have no weights"):
        document_weights(tmp_path, "train", 0)


def test_documents_have_their_weights(built: Path) -> None:
    dataset = DocumentDataset(built / "retain", weights=True)
    assert len(dataset.weights) == len(dataset)
    batch = collate([dataset[0], dataset[1]])
    assert batch["weight"].dtype == torch.float64
    assert batch["weight"].tolist() == dataset.weights[:2].tolist()
    assert set(dataset.weights.tolist()) <= {row["weight"] for row in rows(built / "retain").values()}
    assert "weight" not in DocumentDataset(built / "retain")[0]
    documents_on_disk = documents(built / "retain", "train")
    sample = dataset[0]
    assert sample["tokens"].tolist() == documents_on_disk[0][0]
    assert sample["loss_mask"].tolist() == documents_on_disk[0][1]


def test_documents_are_drawn_by_weight_or_weighed_never_both(built: Path) -> None:
    dataset = DocumentDataset(built / "retain")
    sampler = WeightedSampler.of(dataset, draws=1000, seed=3)
    counts = Counter(sampler)
    shares = dataset.weights * 1000 / dataset.weights.sum()
    assert all(abs(counts[at] - share) < 1 for at, share in enumerate(shares))
    loader = torch.utils.data.DataLoader(dataset, sampler=sampler, batch_size=10, collate_fn=collate)
    assert len(list(loader)) == 100
    with pytest.raises(DatasetError, match="weighed twice"):
        WeightedSampler.of(DocumentDataset(built / "retain", weights=True))


def test_steps_pair_one_harmful_sample_with_some_to_retain(built: Path) -> None:
    loaders = [PairedLoader(built, allow_harmful=True, benign_per_harmful=3, rank=rank, ranks=2) for rank in range(2)]
    together = PairedLoader(built, allow_harmful=True, benign_per_harmful=3)
    steps = list(together.positions())
    assert sorted(one for one, _ in steps) == list(range(len(together.harmful)))
    assert [pair for both in zip(*(each.positions() for each in loaders), strict=True) for pair in both] == steps[
        : 2 * len(loaders[0])
    ]
    beside = [at for _, these in steps for at in these]
    count = len(together.retain)
    assert sorted(beside[:count]) == list(range(count)), "each once before any comes again"
    together.set_epoch(1)
    assert list(together.positions()) != steps
    batch = next(iter(together))
    assert batch["harmful"]["tokens"].shape[0] == 1
    assert batch["retain"]["tokens"].shape[0] == 3
    assert "weight" not in batch["retain"]


def test_steps_with_weights(built: Path) -> None:
    by_loss = PairedLoader(built, allow_harmful=True, weighted="loss")
    assert next(iter(by_loss))["retain"]["weight"].shape == (5,)
    drawn = PairedLoader(built, allow_harmful=True, weighted="sampler", benign_per_harmful=50)
    assert "weight" not in next(iter(drawn))["retain"]
    counts = Counter(at for _, beside in drawn.positions() for at in beside)
    weights = drawn.retain.weights
    for at, count in counts.items():
        assert abs(count - weights[at] * counts.total() / weights.sum()) < 1


def test_the_loader_takes_whole_documents(tmp_path: Path, template: Path, tokenizer: Path) -> None:
    long = [{"role": "system", "content": "You have tools. " * 400}, {"role": "user", "content": "Find picture 1."}]
    data = write_samples(tmp_path / "train.jsonl", [harmful(1, messages=long), retain(1)])
    make(data, template, tokenizer, tmp_path / "roots", valid_fraction=0.0)
    batch = next(iter(PairedLoader(tmp_path / "roots", allow_harmful=True, benign_per_harmful=1)))["harmful"]
    assert batch["loss_mask"].any(), "the answer stands at the end"
