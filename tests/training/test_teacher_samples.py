"""Signals in samples that are cut, packed or concatenated: each position has what was drawn for its own document.

What an entry must be is computed from the raw files, position by position. Positions are recognised by their document:
tokens of the datasets here are random, so that three of them in a row name a place.
"""

import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from megatron.core.datasets.gpt_dataset import GPTDatasetConfig
from megatron.core.utils import get_batch_on_this_cp_rank
from torch.utils.data import DataLoader

from spanloom.dataset import manifest
from spanloom.dataset.plan.format import PlanOptions
from spanloom.dataset.plan.writer import make_plan
from spanloom.errors import DatasetError
from spanloom.training import SpanWeights
from spanloom.training.distillation.loss import TeacherLoss
from spanloom.training.distillation.megatron import context_part
from spanloom.training.loss import SpanCounts, span_normalized_loss
from spanloom.training.megatron_dataset import SpanGPTDataset, SpanWireGPTDataset
from spanloom.training.packed import PackedDataset, collate_packed
from spanloom.training.packed_megatron import packed_datasets
from spanloom.training.pytorch import DocumentDataset, StreamDataset
from support.drawn_teachers import distribution, write_signals
from support.megatron_options import config, open_dataset
from support.ranks import run_ranks
from support.token_datasets import VOCAB_SIZE, random_shards, write_dataset

K = 4
LENGTHS = [[5, 1, 40, 2, 17, 9, 16, 3], [64, 3, 3, 21, 7, 7, 7, 120]]
SHARDS = random_shards(0, LENGTHS)
OPTIONS = PlanOptions(sequence_length=16, strategy="best-fit", seed=0, long="window", question_tokens=8, multiple_of=1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signals")
    return write_dataset(folder / "root", {"train": SHARDS, "valid": random_shards(1, [[30, 12, 22], [40]])})


@pytest.fixture(scope="module")
def signals(root: Path) -> Path:
    return write_signals(root, root.parent / "signals", VOCAB_SIZE, k=K)


def entries(spans: tuple[int, ...] = (1, 2)) -> dict[tuple[int, ...], np.ndarray]:
    """By a position's token, its label, and the span: the distribution there. Positions that share these are None."""
    found: dict[tuple[int, ...], Any] = {}
    for document in (each for shard in SHARDS for each in shard):
        for place in np.flatnonzero(np.isin(document.span, spans)).tolist():
            key = (int(document.tokens[place]), int(document.tokens[place + 1]), int(document.span[place]))
            found[key] = None if key in found else distribution(document.tokens[: place + 1], VOCAB_SIZE)
    return found


def check(sample: Mapping[str, torch.Tensor], spans: tuple[int, ...] = (1, 2)) -> int:
    """Each trained position of a sample, `[S]`, has its entry, others none. Returns how many were recognised."""
    wanted, recognised = entries(spans), 0
    mask = sample["loss_mask"] > 0
    chosen = mask & torch.isin(sample["span_id"], torch.tensor(spans))
    assert torch.equal(sample["teacher_mask"] > 0, chosen)
    for name in ("ids", "logprobs", "own", "rest"):
        assert not sample[f"teacher_{name}"][~chosen].any()
    for place in chosen.nonzero()[:, 0].tolist():
        logprobs = wanted[(int(sample["tokens"][place]), int(sample["labels"][place]), int(sample["span_id"][place]))]
        if logprobs is None:
            continue
        recognised += 1
        order = np.argsort(-logprobs)
        assert sample["teacher_ids"][place].tolist() == order[:K].tolist()
        assert np.abs(sample["teacher_logprobs"][place].numpy() - logprobs[order[:K]]).max() < 6e-4
        assert abs(float(sample["teacher_own"][place]) - logprobs[int(sample["labels"][place])]) < 6e-4
        assert abs(float(sample["teacher_rest"][place]) - np.log(np.exp(logprobs[order[K:]]).sum())) < 6e-4
    return recognised


@pytest.mark.parametrize("multiple_of", [1, 4])
@pytest.mark.parametrize("strategy", ["best-fit", "sequential"])
def test_plans_with_windows_and_repeated_prompts(
    root: Path, signals: Path, tmp_path: Path, strategy: Any, multiple_of: int
) -> None:
    options = PlanOptions(**{**vars(OPTIONS), "strategy": strategy, "multiple_of": multiple_of})
    make_plan(root, manifest.read(root).content, tmp_path / "plan", options)
    dataset = PackedDataset(tmp_path / "plan", root=root, teacher=signals)
    plain = PackedDataset(tmp_path / "plan", root=root)
    recognised = sum(check(dataset[number]) for number in range(len(dataset)))
    assert recognised > 150
    assert all(torch.equal(dataset[number]["tokens"], plain[number]["tokens"]) for number in range(len(plain)))
    batch = collate_packed([dataset[0], dataset[1]])
    assert batch["teacher_ids"].shape == (2, 16, K)
    assert torch.equal(pickle.loads(pickle.dumps(dataset))[3]["teacher_ids"], dataset[3]["teacher_ids"])


@pytest.mark.parametrize("length", [7, 16, 61])
def test_streams_that_cut_documents_and_shards(root: Path, signals: Path, length: int) -> None:
    dataset = StreamDataset(root, sequence_length=length, teacher=signals)
    assert sum(map(check, map(dataset.__getitem__, range(len(dataset))))) > 150
    several = next(iter(DataLoader(dataset, batch_size=3, num_workers=1)))
    assert torch.equal(several["teacher_ids"][2], dataset[2]["teacher_ids"])


def with_teacher(cache: Path, length: int, teacher: Path, **changes: Any) -> GPTDatasetConfig:
    options = config(cache, length, **changes)
    options.teacher = teacher
    return options


def opened(root: Path, options: GPTDatasetConfig, shard: int = 0, kind: type[SpanGPTDataset] = SpanGPTDataset) -> Any:
    return open_dataset(root / f"train/shard_{shard:02d}_tokens", options, kind=kind)


@pytest.mark.parametrize("extra", [True, False])
@pytest.mark.parametrize("length", [7, 16, 61])
def test_samples_of_megatron(root: Path, signals: Path, tmp_path: Path, length: int, extra: bool) -> None:
    recognised = 0
    for shard in (0, 1):
        dataset = opened(root, with_teacher(tmp_path, length, signals, add_extra_token_to_sequence=extra), shard)
        recognised += sum(map(check, map(dataset.__getitem__, range(len(dataset)))))
        assert not dataset[None]["teacher_mask"].any()
    assert recognised > 120


def test_the_wire_has_signals_too(root: Path, signals: Path, tmp_path: Path) -> None:
    plain = opened(root, with_teacher(tmp_path, 16, signals))
    wire = opened(root, with_teacher(tmp_path, 16, signals), kind=SpanWireGPTDataset)
    for number in range(len(plain)):
        assert torch.equal(wire[number]["teacher_ids"], plain[number]["teacher_ids"])
        assert torch.equal(wire[number]["teacher_mask"] > 0, wire[number]["loss_mask"] > 0)


def test_plans_in_megatron(root: Path, signals: Path, tmp_path: Path) -> None:
    make_plan(root, manifest.read(root).content, tmp_path / "plan", OPTIONS)
    options = with_teacher(tmp_path, 16, signals, create_attention_mask=True)
    found = packed_datasets(tmp_path / "plan", options, [None, None, None], root=root)[0]
    samples = [{**found[number]} for number in range(len(found))]
    plain = PackedDataset(tmp_path / "plan", root=root, teacher=signals)
    wanted = {tuple(plain[number]["tokens"].tolist()): plain[number] for number in range(len(plain))}
    assert len(samples) == len(plain)
    for sample in samples:
        of_plan = wanted[tuple(sample["tokens"].tolist())]
        assert torch.equal(sample["teacher_ids"], of_plan["teacher_ids"])
        assert torch.equal(sample["teacher_mask"], of_plan["teacher_mask"])


def test_signals_of_one_span(root: Path, tmp_path: Path) -> None:
    signals = write_signals(root, tmp_path / "signals", VOCAB_SIZE, k=K, spans=("final",))
    make_plan(root, manifest.read(root).content, tmp_path / "plan", OPTIONS)
    stream = StreamDataset(root, sequence_length=16, teacher=signals)
    packed = PackedDataset(tmp_path / "plan", root=root, teacher=signals)
    megatron = opened(root, with_teacher(tmp_path, 16, signals))
    for dataset in (stream, packed, megatron):
        assert sum(check(dataset[number], (2,)) for number in range(len(dataset))) > 20


def test_documents_without_signals(root: Path, tmp_path: Path) -> None:
    """The teacher takes 30 tokens: of the first shard's eight documents the third, of 40, is left out."""
    signals = write_signals(root, tmp_path / "signals", VOCAB_SIZE, k=K, context=30)
    strict = StreamDataset(root, sequence_length=61, teacher=signals)
    with pytest.raises(DatasetError, match="no signals of document train/0/2"):
        strict[0]
    zero = StreamDataset(root, sequence_length=61, teacher=signals, missing_teacher="zero")[0]
    first = sum(LENGTHS[0][:2])
    assert zero["loss_mask"][first : first + 40].any()
    assert not zero["teacher_mask"][first : first + 40].any()
    assert torch.equal(zero["teacher_mask"][:first], zero["loss_mask"][:first])


def test_signals_of_another_dataset_are_refused(signals: Path, tmp_path: Path) -> None:
    other = write_dataset(tmp_path / "root", {"train": random_shards(5, LENGTHS)})
    with pytest.raises(DatasetError, match="signals of another dataset"):
        opened(other, with_teacher(tmp_path, 16, signals))
    with pytest.raises(DatasetError, match="signals of another dataset"):
        DocumentDataset(other, teacher=signals)


def steps_over_ranks(root: Path, signals: Path) -> None:
    """Run by each rank: its parts of the sequences are those that Megatron cuts. In micro-batches they give the loss
    and the gradient of the whole."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    made = StreamDataset(root, sequence_length=16, teacher=signals)
    weights, loss = SpanWeights({"analysis": 0.5, "final": 2.0}), TeacherLoss(cross_entropy=0.25)
    batches = [
        {key: torch.stack([made[number][key] for number in numbers]) for key in made[0]}
        for numbers in ((0, 1), (2, 3), (4, 5))
    ]
    embedding = torch.randn((VOCAB_SIZE, VOCAB_SIZE), generator=torch.Generator().manual_seed(0))

    def share(batch: dict[str, torch.Tensor], student: torch.Tensor, counts: SpanCounts) -> torch.Tensor:
        losses = loss.of(student[batch["tokens"]], batch["labels"], batch)
        mask = batch["loss_mask"] * batch["teacher_mask"]
        return span_normalized_loss(losses, mask, batch["span_id"], counts, weights)

    def counted(batch: dict[str, torch.Tensor]) -> SpanCounts:
        return SpanCounts.of(batch["loss_mask"] * batch["teacher_mask"], batch["span_id"], len(weights))

    whole = {key: torch.cat([batch[key] for batch in batches]) for key in batches[0]}
    student = embedding.clone().requires_grad_()
    wanted = share(whole, student, counted(whole))
    wanted.backward()
    own = [{key: context_part(values, size, rank) for key, values in batch.items()} for batch in batches]
    for batch, part_of_batch in zip(batches, own, strict=True):
        for key, values in get_batch_on_this_cp_rank(dict(batch), dist.group.WORLD).items():
            assert torch.equal(values, part_of_batch[key]), key
    counts = sum(map(counted, own[1:]), counted(own[0])).all_reduced()
    part = embedding.clone().requires_grad_()
    total = torch.zeros(())
    for batch in own:
        one = share(batch, part, counts)
        one.backward()
        total += one.detach()
    assert part.grad is not None
    assert student.grad is not None
    dist.all_reduce(total)
    dist.all_reduce(part.grad)
    assert torch.allclose(total, wanted.detach(), rtol=1e-6)
    assert torch.allclose(part.grad, student.grad, atol=1e-7)
    print("equal")


@pytest.mark.parametrize("ranks", [2, 4])
def test_context_parallel_ranks_and_micro_batches_give_the_loss_of_the_whole(
    root: Path, signals: Path, ranks: int
) -> None:
    for done in run_ranks("training.test_teacher_samples", root, signals, ranks=ranks):
        assert done.returncode == 0, done.stderr
        assert "equal" in done.stdout


if __name__ == "__main__":
    steps_over_ranks(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.exit(0)
