"""Packed samples for PyTorch: every one held against a slow loop, and what a model sees against each document alone."""

import itertools
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from conftest import REPOSITORY
from spanloom.dataset import manifest
from spanloom.dataset.plan.format import Plan, PlanOptions
from spanloom.dataset.plan.writer import make_plan
from spanloom.errors import DatasetError
from spanloom.training.packed import EpochSampler, PackedDataset, block_diagonal, collate_packed, document_ids, varlen
from spanloom.training.samples.epoch_order import samples_at
from support import plan_reference
from support.each import each
from support.nightly import NIGHTLY, drawn
from support.packed_datasets import write_packed
from support.tiny_gpt import TinyGPT, alone
from support.token_datasets import VOCAB_SIZE, random_shards, write_dataset, write_manifest

LENGTHS = [[5, 1, 40, 2, 17, 9, 16, 3], [], [64, 3, 3, 21, 7, 7, 7, 120]]
OPTIONS = PlanOptions(sequence_length=16, strategy="best-fit", seed=0, long="window", question_tokens=8, multiple_of=1)


def planned(root: Path, out: Path, **changes: object) -> Plan:
    options = PlanOptions(**{**vars(OPTIONS), **changes})  # type: ignore[arg-type]
    return make_plan(root, manifest.read(root).content, out, options)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    splits = {"train": random_shards(0, LENGTHS), "valid": random_shards(1, [[8, 1, 30], [3, 12], [40]])}
    return write_dataset(tmp_path_factory.mktemp("plan") / "root", splits)


def check_samples(plan: Plan, split: str) -> int:
    dataset = PackedDataset(plan.folder, split, root=plan.root)
    wanted = plan_reference.all_samples(plan.folder, plan.root, split)
    assert len(dataset) == len(wanted)
    for number, sample in enumerate(wanted):
        found = plan_reference.as_lists(dataset[number])
        assert found.keys() == sample.keys()
        for name, values in sample.items():
            assert found[name] == values, (split, number, name)
    plan_reference.check_laws(plan.folder, plan.root, split)
    return len(wanted)


@pytest.mark.parametrize("multiple_of", [1, 4])
@pytest.mark.parametrize("long", ["window", "truncate", "drop"])
@pytest.mark.parametrize("strategy", ["best-fit", "sequential"])
def test_every_sample_is_that_of_the_slow_loop(
    root: Path, tmp_path: Path, strategy: str, long: str, multiple_of: int
) -> None:
    lengths = (4, 16, 64) if NIGHTLY else (16,)
    for length, seed in itertools.product(lengths, (0, 7)):
        changes = {"strategy": strategy, "long": long, "multiple_of": multiple_of, "seed": seed}
        plan = planned(
            root, tmp_path / f"{length}_{seed}", sequence_length=length, question_tokens=length // 2, **changes
        )
        for split in ("train", "valid"):
            assert check_samples(plan, split)


@pytest.mark.parametrize("strategy", ["best-fit", "sequential"])
def test_which_documents_go_together_is_as_packing_them_one_by_one(root: Path, tmp_path: Path, strategy: str) -> None:
    plan = planned(root, tmp_path / "plan", strategy=strategy, multiple_of=2)
    for split in ("train", "valid"):
        for shard in plan_reference.read_split(plan.folder, root, split):
            sizes = plan_reference.unit_sizes(shard, 16, 2)
            if strategy == "sequential":
                assert shard.groups == plan_reference.sequential(sizes, 16)
            else:
                filled = sorted(sum(sizes[unit] for unit in group) for group in shard.groups)
                assert filled == plan_reference.best_fit(sizes, 16)


@pytest.mark.slow
@each("options", [
    (256, 0, "best-fit"), (512, 3, "sequential"), (1024, 1, "best-fit"), (4096, 2, "best-fit"), (4096, 0, "sequential"),
][:: drawn(nightly=1, otherwise=3)])  # fmt: skip
def test_the_real_sample_has_no_difference(
    real_sample: Path, tmp_path_factory: pytest.TempPathFactory, options: tuple[int, int, str]
) -> None:
    length, seed, strategy = options
    tmp_path = tmp_path_factory.mktemp("plan")
    root = tmp_path / "root"
    shutil.copytree(real_sample / "expected", root)
    o200k = {"name": "o200k_harmony", "sha256": "44" * 32, "vocab_size": 201_088, "eod": 199_999}
    write_manifest(root, shards=4, tokenizer=o200k)
    plan = planned(
        root, tmp_path / "plan", sequence_length=length, question_tokens=length // 2, seed=seed, strategy=strategy
    )
    for split in ("train", "valid"):
        assert check_samples(plan, split)
        for shard in plan_reference.read_split(plan.folder, root, split):
            # Windows of the real conversations, by the slow loop.
            rows = [[row[0], *plan_reference.normal(row[1:])] for row in shard.windows]
            assert rows == [
                [number, *plan_reference.normal(window)]
                for number, document in enumerate(shard.documents)
                if document.tokens.size > length
                for window in plan_reference.windows_of(document.lossmask.tolist(), length, length // 2)
            ]


def test_a_dataset_of_blocks_without_spans(tmp_path: Path) -> None:
    """Another family: packed chat. Blocks fill samples of their length, or stand side by side in longer ones."""
    records = [list(range(10, 10 + size)) for size in (7, 5, 9, 30, 12)]
    write_packed(tmp_path / "root", [records, records[:2]], block_size=8)
    plan = planned(tmp_path / "root", tmp_path / "two", sequence_length=16)
    dataset = PackedDataset(plan.folder)
    assert "span_id" not in dataset[0]
    for length in (8, 16, 24):
        plan = planned(tmp_path / "root", tmp_path / f"plan_{length}", sequence_length=length, question_tokens=4)
        assert plan.content.splits["train"].long_documents == 0
        for shard in plan.content.splits["train"].shards:
            assert shard.samples == -(-shard.documents // (length // 8))
    with pytest.raises(DatasetError, match="blocks of 8 tokens"):
        planned(tmp_path / "root", tmp_path / "short", sequence_length=4, question_tokens=2)


@pytest.mark.parametrize("samples", [1, 2, 3, 17, 256, 1025])
def test_an_epoch_has_every_sample_once_in_an_order_of_its_own(samples: int) -> None:
    orders = []
    for seed, epoch in ((0, 0), (0, 1), (5, 0)):
        order = samples_at(np.arange(samples), samples, seed=seed, epoch=epoch).tolist()
        assert sorted(order) == list(range(samples))
        assert order == [plan_reference.sample_at(position, samples, seed, epoch) for position in range(samples)]
        orders.append(order)
    assert samples < 17 or len({tuple(order) for order in orders}) == 3


def test_an_order_is_no_slide_of_another() -> None:
    """Neighbours of one epoch are none in the next."""
    one, other = (samples_at(np.arange(4096), 4096, seed=0, epoch=epoch) for epoch in (0, 1))
    place = np.argsort(other)
    distances = np.abs(np.diff(place[one]))
    assert np.median(distances) > 4096 / 8
    assert abs(np.corrcoef(one, np.arange(4096))[0, 1]) < 0.1


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("begin", [0, 1, 30, 36, 37, 75])
def test_ranks_share_a_run_and_go_on_anywhere(ranks: int, begin: int) -> None:
    samples, end = 37, 3 * 37
    run = [plan_reference.sample_at(number % samples, samples, 4, number // samples) for number in range(end)]
    shares = [
        list(EpochSampler(samples, seed=4, rank=rank, ranks=ranks, begin=begin, end=end)) for rank in range(ranks)
    ]
    for rank, share in enumerate(shares):
        assert share == [run[number] for number in range(begin, end) if number % ranks == rank]
        assert len(EpochSampler(samples, seed=4, rank=rank, ranks=ranks, begin=begin, end=end)) == len(share)
    assert sorted(itertools.chain(*shares)) == sorted(run[begin:])
    # Without an end: to the end of this epoch.
    (rest,) = [list(EpochSampler(samples, seed=4, begin=begin))]
    assert rest == run[begin : (begin // samples + 1) * samples]


def test_worker_processes_and_a_moved_dataset(root: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(root, moved)
    plan = planned(root, tmp_path / "plan", multiple_of=2)
    dataset = pickle.loads(pickle.dumps(PackedDataset(plan.folder, root=moved)))
    assert dataset.samples.plan.root == moved
    wanted = plan_reference.all_samples(plan.folder, root, "train")
    sampler = EpochSampler(len(dataset), seed=1)
    order = list(sampler)
    loader = DataLoader(dataset, batch_size=3, sampler=sampler, collate_fn=collate_packed, num_workers=2)
    seen = 0
    for batch in loader:
        for row in range(batch["tokens"].shape[0]):
            assert batch["tokens"][row].tolist() == wanted[order[seen]]["tokens"]
            bounds = batch["cu_seqlens"][row].tolist()
            size = len(wanted[order[seen]]["cu_seqlens"])
            assert (bounds[:size], set(bounds[size:])) == (
                wanted[order[seen]]["cu_seqlens"],
                {16} if bounds[size:] else set(),
            )
            seen += 1
    assert seen == len(dataset)


def test_bounds_as_masks_and_for_kernels_of_variable_length() -> None:
    bounds = torch.tensor([[0, 2, 3, 5], [0, 5, 5, 5]], dtype=torch.int32)
    assert document_ids(bounds, 5).tolist() == [[0, 0, 1, 2, 2], [0, 0, 0, 0, 0]]
    assert block_diagonal(bounds, 5)[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 1, 1],
    ]
    assert block_diagonal(bounds, 5)[1, 0].int().tolist() == torch.ones(5, 5).tril().int().tolist()
    flat, longest = varlen(bounds, 5)
    assert (flat.tolist(), flat.dtype, longest) == ([0, 2, 3, 5, 10], torch.int32, 5)


def test_the_loop_of_the_docs(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (REPOSITORY / "docs/training/plans.md").read_text()
    (snippet,) = re.findall(r"```python\n((?:(?!```).)*EpochSampler.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    plan = planned(root, tmp_path / "data/demo/plan", sequence_length=64)
    names = {"model": TinyGPT(vocabulary=VOCAB_SIZE, positions=64)}
    exec(compile(snippet, "plans.md", "exec"), names)
    assert names["loss"].item() > 0
    assert len(names["dataset"]) == plan.content.splits["train"].samples


@pytest.mark.parametrize("multiple_of", [1, 4])
def test_logits_are_those_of_each_document_alone(root: Path, tmp_path: Path, multiple_of: int) -> None:
    """Nothing crosses a document: through the mask, and through the bounds of variable length."""
    plan = planned(root, tmp_path / "plan", multiple_of=multiple_of)
    torch.manual_seed(0)
    model = TinyGPT(vocabulary=VOCAB_SIZE, positions=16).eval()
    dataset = PackedDataset(plan.folder)
    shards = plan_reference.read_split(plan.folder, root, "train")
    groups = [(shard, group) for shard in shards for group in shard.groups]
    units = 0
    with torch.no_grad():
        for first in range(0, len(dataset), 4):
            batch = collate_packed([dataset[number] for number in range(first, min(first + 4, len(dataset)))])
            masked = model(batch["tokens"], batch["position_ids"], block_diagonal(batch["cu_seqlens"], 16))
            bounds, longest = varlen(batch["cu_seqlens"], 16)
            assert longest <= 16
            flat, places = batch["tokens"].flatten(), batch["position_ids"].flatten()
            for begin, end in itertools.pairwise(bounds.tolist()):
                assert places[begin:end].tolist() == list(range(end - begin))
                apart = alone(model, flat[begin:end].tolist())
                assert (masked.flatten(0, 1)[begin:end] - apart).abs().max() < 1e-5
            for row, (shard, group) in enumerate(groups[first : first + 4]):
                for unit, begin in zip(group, batch["cu_seqlens"][row].tolist(), strict=False):
                    document, positions = plan_reference.pieces(shard, unit)
                    apart = alone(model, [int(document.tokens[position]) for position, _ in positions])
                    assert (masked[row, begin : begin + len(positions)] - apart).abs().max() < 1e-5
                    units += 1
    assert units == sum(len(group) for _, group in groups)
    # The test can fail: with plain causal attention it does.
    sample = dataset[next(number for number, (_, group) in enumerate(groups) if len(group) > 1)]
    causal = torch.ones(16, 16, dtype=torch.bool).tril()[None, None]
    with torch.no_grad():
        crossed = model(sample["tokens"][None], sample["position_ids"][None], causal)[0]
        kept = model(
            sample["tokens"][None], sample["position_ids"][None], block_diagonal(sample["cu_seqlens"][None], 16)
        )
    assert (crossed - kept[0]).abs().max() > 1e-3
