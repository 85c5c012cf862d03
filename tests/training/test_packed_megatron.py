"""Packed samples for Megatron: stock keys, builder, blends, THD parameters; gradients over gloo."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDatasetConfig
from torch.utils.data import default_collate

from spanloom.dataset import manifest
from spanloom.dataset.plan.format import Plan, PlanOptions
from spanloom.dataset.plan.writer import make_plan
from spanloom.errors import DatasetError
from spanloom.training.megatron_dataset import DatasetTokenizer
from spanloom.training.packed import PackedDataset, block_diagonal
from spanloom.training.packed_megatron import PackedGPTDataset, packed_datasets, packed_seq_params
from support import plan_reference
from support.megatron_options import config, packing_config
from support.ranks import run_ranks
from support.token_datasets import TOKENIZER_SHA256, VOCAB_SIZE, random_document, random_shards, write_dataset

LENGTHS = [[5, 1, 40, 2, 17, 9, 16, 3], [64, 3, 3, 21, 7, 7, 7]]
MASKS = hasattr(GPTDatasetConfig, "inter_document_masking")


def planned(root: Path, out: Path, **changes: object) -> Plan:
    options = {"sequence_length": 16, "strategy": "best-fit", "seed": 0, "long": "window", "question_tokens": 8}
    content = manifest.read(root).content
    return make_plan(root, content, out, PlanOptions(**{"multiple_of": 1, **options, **changes}))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    splits = {"train": random_shards(0, LENGTHS), "valid": random_shards(1, [[8, 1, 30], [3, 12]])}
    return write_dataset(tmp_path_factory.mktemp("plan") / "root", splits)


@pytest.fixture(scope="module")
def plan(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return planned(root, tmp_path_factory.mktemp("plan") / "plan")


def test_samples_have_the_stock_keys_and_the_order_of_the_run(plan: Plan, tmp_path: Path) -> None:
    train, valid, test = packed_datasets(
        plan.folder, packing_config(tmp_path, 16, random_seed=9), [50, None, None], kind=PackedGPTDataset
    )
    assert test is None
    for dataset, split in ((train, "train"), (valid, "valid")):
        wanted = plan_reference.all_samples(plan.folder, plan.root, split)
        epochs = -(-50 // len(wanted)) if split == "train" else 1
        assert len(dataset) == epochs * len(wanted)
        for number in range(len(dataset)):
            sample = wanted[plan_reference.sample_at(number % len(wanted), len(wanted), 9, number // len(wanted))]
            item = dataset[number]
            assert item.keys() == {*sample, "max_seqlen"}
            bounds = item.pop("cu_seqlens")
            assert (bounds.dtype, tuple(bounds.shape)) == (torch.int32, (17,))
            size = len(sample["cu_seqlens"])
            assert bounds[:size].tolist() == sample["cu_seqlens"]
            assert set(bounds[size:].tolist()) <= {16}
            longest = item.pop("max_seqlen")
            assert (longest.dtype, longest.dim(), int(longest)) == (torch.int32, 0, int(bounds.diff().max()))
            for name, values in item.items():
                assert values.tolist() == sample[name], (split, number, name)
    empty = train[None]
    assert not empty["loss_mask"].any()
    assert not empty["span_id"].any()


def test_the_wire_carries_the_span_in_the_mask(plan: Plan, tmp_path: Path) -> None:
    options = packing_config(tmp_path, 16)
    wired, plain = (
        packed_datasets(plan.folder, options, [None] * 3, **kind)[0] for kind in ({}, {"kind": PackedGPTDataset})
    )
    for number in range(len(wired)):
        wire, item = wired[number], plain[number]
        assert "span_id" not in wire
        assert wire["loss_mask"].dtype == torch.float32
        assert wire["loss_mask"].tolist() == (item["loss_mask"] * item["span_id"]).tolist()
    assert not wired[None]["loss_mask"].any()


def test_a_mask_where_the_config_asks_for_one(plan: Plan, tmp_path: Path) -> None:
    options = config(tmp_path, 16, create_attention_mask=True)
    dataset = packed_datasets(plan.folder, options, [None] * 3, kind=PackedGPTDataset)[0]
    wanted = plan_reference.all_samples(plan.folder, plan.root, "train")
    for number in range(len(dataset)):
        item = dataset[number]
        assert "cu_seqlens" not in item
        bounds = wanted[plan_reference.sample_at(number, len(wanted), 1, 0)]["cu_seqlens"]
        of = [sum(bound <= position for bound in bounds) for position in range(16)]
        hidden = [[[not (of[i] == of[j] and j <= i) for j in range(16)] for i in range(16)]]
        assert item["attention_mask"].tolist() == hidden


@pytest.mark.skipif(not MASKS, reason="megatron-core before 0.19 has no inter-document masking to compare with")
def test_keys_and_types_are_those_of_inter_document_masking(root: Path, plan: Plan, tmp_path: Path) -> None:
    from support.megatron_options import open_dataset

    stock = open_dataset(root / "train/shard_00_tokens", packing_config(tmp_path, 16))[0]
    ours = packed_datasets(plan.folder, packing_config(tmp_path, 16), [None] * 3)[0][0]
    assert ours.keys() == stock.keys() - {"span_id"}
    for name, values in ours.items():
        assert (values.dtype, values.shape) == (stock[name].dtype, stock[name].shape), name


def test_thd_parameters_hold_the_bounds_of_a_whole_batch(plan: Plan, tmp_path: Path) -> None:
    dataset = packed_datasets(plan.folder, packing_config(tmp_path, 16), [None] * 3)[0]
    batch = default_collate([dataset[number] for number in range(3)])
    found = packed_seq_params(batch["cu_seqlens"], 16)
    wanted = [0]
    for row, bounds in enumerate(batch["cu_seqlens"].tolist()):
        wanted += [16 * row + bound for bound in dict.fromkeys(bounds) if bound]
    assert found.qkv_format == "thd"
    assert found.cu_seqlens_q.tolist() == found.cu_seqlens_kv.tolist() == wanted
    assert found.cu_seqlens_q.dtype == torch.int32
    assert found.max_seqlen_q == found.max_seqlen_kv == max(b - a for a, b in itertools.pairwise(wanted))
    # The same documents as the mask's, position by position.
    mask = block_diagonal(batch["cu_seqlens"], 16)
    flat = torch.block_diag(*[mask[row, 0] for row in range(3)])
    of = torch.searchsorted(found.cu_seqlens_q[1:].long(), torch.arange(48), right=True)
    assert torch.equal(flat.bool(), (of[:, None] == of[None]).tril())


@pytest.fixture(scope="module")
def _alone() -> "object":
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("_alone")
def test_plans_blend_by_weight(root: Path, plan: Plan, tmp_path: Path) -> None:
    """Two plans in Megatron's own blend, each named as PLAN/SPLIT."""
    other = planned(root, tmp_path / "other", strategy="sequential")
    blend = ([str(plan.folder / "train"), str(other.folder / "train")], [1.0, 3.0])
    options = packing_config(tmp_path / "cache", 16, blend_per_split=[blend, None, None])
    train = BlendedMegatronDatasetBuilder(PackedGPTDataset, [80, None, None], lambda: True, options).build()[0]
    assert len(train) == 80
    drawn = [train[number]["dataset_id"] for number in range(80)]
    assert abs(drawn.count(1) - 60) <= 1


def test_what_cannot_be_trained_on_is_refused(root: Path, plan: Plan, tmp_path: Path) -> None:
    def refused(match: str, folder: Path = plan.folder, **changes: object) -> None:
        options = packing_config(tmp_path, int(changes.pop("sequence_length", 16)), **changes)  # type: ignore[call-overload]
        with pytest.raises(DatasetError, match=match):
            packed_datasets(folder, options, [None] * 3)

    refused(r"the plan has samples of 16 tokens, the config's sequence_length is 32", sequence_length=32)
    other = DatasetTokenizer(name="test", sha256="cd" * 32, vocab_size=VOCAB_SIZE, eod=3)
    refused("this tokenizer has", tokenizer=other)
    eod = DatasetTokenizer(name="test", sha256=TOKENIZER_SHA256, vocab_size=VOCAB_SIZE, eod=3)
    refused("end-of-document is 3", tokenizer=eod)
    if MASKS:
        refused("keep the documents of a sample apart", inter_document_masking=False)
    refused(
        "pads them to multiples of 1",
        context_parallel_size=2,
        **({"inter_document_masking": False, "create_attention_mask": True} if MASKS else {}),
    )
    padded = planned(root, tmp_path / "padded", multiple_of=4)
    packed_datasets(padded.folder, packing_config(tmp_path, 16, context_parallel_size=2), [None] * 3)


def test_gradients_over_two_ranks_are_those_of_each_document_alone(tmp_path: Path) -> None:
    """Real processes, gloo, Megatron's schedule: two ranks, one and two micro-batches, reasoning in few documents."""
    random = np.random.default_rng(3)
    lengths = [*random.integers(2, 14, 40).tolist(), 40, 33]
    documents = [random_document(random, length, spans=(0, 2)) for length in lengths]
    documents += [random_document(random, 12, spans=(0, 1, 2)) for _ in range(3)]
    root = write_dataset(tmp_path / "root", {"train": [documents]})
    plan = planned(root, tmp_path / "plan", seed=2)
    out = tmp_path / "out.json"
    done = run_ranks("support.packed_gradients", plan.folder, root, out, ranks=2)
    assert not any(rank.returncode for rank in done), "\n".join(rank.stderr for rank in done)
    results = json.loads(out.read_text())
    assert len(results) == 2
    for result in results:
        assert result["gradient"] <= 1e-5, result
        assert result["loss"][0] == pytest.approx(result["loss"][1], rel=1e-5), result
        assert result["counts"][0] == result["counts"][1], result
    # Reasoning is in the last step, and not in each of its micro-batches.
    assert results[-1]["counts"][0][0] > 0
    assert 0 < results[-1]["without_analysis"] < results[-1]["micro_batches"]


def test_the_datasets_are_those_of_plain_pytorch(plan: Plan, tmp_path: Path) -> None:
    dataset = packed_datasets(plan.folder, packing_config(tmp_path, 16), [None] * 3, kind=PackedGPTDataset)[0]
    plain = PackedDataset(plan.folder)
    for number in range(len(dataset)):
        sample = plain[plan_reference.sample_at(number, len(plain), 1, 0)]
        for name in sample.keys() - {"cu_seqlens"}:
            assert torch.equal(dataset[number][name], sample[name])
