"""Megatron-LM's own script trains on a dataset: both versions, on a CPU that passes for a GPU.

What stands below `real` runs `pretrain_gpt.py` itself; figures are read off its standard output.
"""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from spanloom.dataset.blend import blend, per_split
from spanloom.dataset.plan.format import Plan, PlanOptions
from spanloom.dataset.plan.writer import make_plan
from spanloom.errors import DatasetError, SpanloomError
from spanloom.training import pretrain_gpt
from spanloom.training.loss import SpanWeights
from spanloom.training.megatron_step import SpanStep
from spanloom.training.shard import read_content
from support.drawn_teachers import write_signals
from support.each import each
from support.megatron_lm import CPU, MegatronLM, figures, launcher
from support.pretrain_gpt_runs import run_pretrain_gpt
from support.token_datasets import VOCAB_SIZE, random_document, write_dataset, write_manifest

LENGTH = 32
SIZE = "--num-layers 6 --hidden-size 32 --num-attention-heads 2 --position-embedding-type learned_absolute"
RUN = (
    f"--seq-length {LENGTH} --max-position-embeddings {LENGTH} --attention-dropout 0 --hidden-dropout 0 "
    "--micro-batch-size 1 --global-batch-size 4 --train-iters 2 --lr 1e-2 --lr-decay-style constant --seed 1234 "
    "--eval-iters 2 --eval-interval 2 --log-interval 1 --no-create-attention-mask-in-dataloader "
    "--span-weights analysis=0.5,final=2"
)
LAYOUTS = {
    "one process": (1, ""),
    "data parallel": (2, ""),
    "distributed optimizer": (2, "--use-distributed-optimizer"),
    "tensor parallel": (2, "--tensor-model-parallel-size 2"),
    "two pipeline stages": (2, "--pipeline-model-parallel-size 2"),
    "three pipeline stages": (3, "--pipeline-model-parallel-size 3"),
}
VIRTUAL_STAGES = (3, "--pipeline-model-parallel-size 3 --num-virtual-stages-per-pipeline-rank 2")
IN_ORDER = "--no-overlap-p2p-communication --global-batch-size 6"
"""gloo sends what Megatron has let go of already where sending and computing overlap: on a GPU a stream orders them.

Without overlap Megatron wants three stages, and as many micro-batches as they divide.
"""


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of train and of valid. Some documents have one span alone, so that micro-batches lack the other."""
    random = np.random.default_rng(0)

    def shards(documents: int) -> Any:
        spans = [(0, 1, 2), (0, 1), (0, 2)]
        return [
            [random_document(random, int(length), spans[number % 3]) for number, length in enumerate(lengths)]
            for lengths in random.integers(20, 100, (2, documents))
        ]

    return write_dataset(tmp_path_factory.mktemp("pretrain") / "root", {"train": shards(24), "valid": shards(12)})


@pytest.fixture(scope="session")
def data_flags(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    content = read_content(root)
    splits = {split: blend(content, root, split, sequence_length=LENGTH) for split in ("train", "valid")}
    folder = tmp_path_factory.mktemp("blend")
    (folder / "blend.json").write_text(json.dumps(per_split(splits)))
    return [f"--per-split-data-args-path={folder / 'blend.json'}", f"--data-cache-path={folder / 'cache'}"]


@cache  # a run of the same flags gives the same figures
def run(
    version: MegatronLM, processes: int, *flags: str, check: Path | None = None, without: tuple[str, ...] = ()
) -> str:
    """Standard output of all ranks. `check`: where the second computation of each step is written; `without`: flags
    of `RUN` that are left out."""
    environment = {} if check is None else {"SPANLOOM_CHECK": str(check)}
    set_up = (flag for flag in f"{SIZE} {RUN} {CPU}".split() if flag not in without)
    done = run_pretrain_gpt(version, processes, *set_up, *flags, environment=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout


@each("layout", LAYOUTS)
def test_both_versions_log_the_same_figures(
    both_versions: list[MegatronLM], data_flags: list[str], layout: str
) -> None:
    processes, flags = LAYOUTS[layout]
    first, second = (figures(run(version, processes, *data_flags, *flags.split())) for version in both_versions)
    assert first == second
    assert len(first) == 4, "two steps, and valid twice"
    for step in first:
        value = {name: float(shown) for name, shown in step.items()}
        tokens = value["analysis tokens"] + value["final tokens"]
        assert value["lm loss"] > 0
        if step is first[1]:
            continue  # Megatron logs its first step apart and again within the first interval: means of two steps
        assert value["weighted loss"] == pytest.approx(0.5 * value["analysis loss"] + 2 * value["final loss"], rel=1e-5)
        assert value["analysis weight"] == pytest.approx(0.5 * tokens / value["analysis tokens"], rel=1e-5)
        assert value["final weight"] == pytest.approx(2 * tokens / value["final tokens"], rel=1e-5)


def test_virtual_pipeline_stages_train_on_the_same_tokens(
    version_of_megatron_lm: MegatronLM, data_flags: list[str]
) -> None:
    """Their initial weights are drawn otherwise in each version, so losses are not held against each other."""
    processes, flags = VIRTUAL_STAGES
    virtual = figures(run(version_of_megatron_lm, processes, *data_flags, *flags.split(), *IN_ORDER.split()))
    plain = figures(run(version_of_megatron_lm, 1, *data_flags, *IN_ORDER.split()[1:]))
    counted = [{name: value for name, value in each.items() if name.endswith(("tokens", "weight"))} for each in virtual]
    assert len(counted) == 4
    assert counted == [{name: value for name, value in each.items() if name in counted[0]} for each in plain]


def steps_that_are_right(out: Path) -> list[dict[str, Any]]:
    """The steps of a check, each held against the definition."""
    checked: list[dict[str, Any]] = json.loads(out.read_text())
    assert [step["kind"] for step in checked] == ["train", "train", "valid", "valid"]
    for step in checked:
        assert {name: step["logged"][name] for name in step["right"]} == pytest.approx(step["right"], rel=1e-5)
        if step["kind"] == "train":
            assert step["gradient"] < 1e-5
            assert step["change"] < 1e-6
    return checked


@each("processes", [1, 2])
def test_a_step_is_the_gradient_of_the_definition_and_evaluation_is_exact(
    version_of_megatron_lm: MegatronLM, data_flags: list[str], tmp_path: Path, processes: int
) -> None:
    sgd = "--optimizer sgd --sgd-momentum 0 --clip-grad 0 --weight-decay 0 --lr 0.1"
    out = tmp_path / "check.json"
    run(version_of_megatron_lm, processes, *data_flags, *sgd.split(), check=out)
    checked = steps_that_are_right(out)
    assert any(step["lacking"] for step in checked if step["kind"] == "valid"), "a micro-batch that lacks a span"


@pytest.fixture(scope="session")
def teacher_flags(root: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    signals = write_signals(root, tmp_path_factory.mktemp("teacher") / "signals", VOCAB_SIZE)
    return [f"--teacher={signals}", "--teacher-cross-entropy=0.25"]


@each("layout", {name: LAYOUTS[name] for name in ("one process", "data parallel", "tensor parallel")})
def test_a_step_against_a_teacher_is_the_gradient_of_the_definition(
    version_of_megatron_lm: MegatronLM, data_flags: list[str], teacher_flags: list[str], tmp_path: Path, layout: str
) -> None:
    processes, flags = LAYOUTS[layout]
    sgd = f"--optimizer sgd --sgd-momentum 0 --clip-grad 0 --weight-decay 0 --lr 0.1 {flags}"
    out = tmp_path / "check.json"
    run(version_of_megatron_lm, processes, *data_flags, *teacher_flags, *sgd.split(), check=out)
    steps_that_are_right(out)


def test_signals_reach_the_last_pipeline_stage(
    version_of_megatron_lm: MegatronLM, data_flags: list[str], teacher_flags: list[str]
) -> None:
    """Initial weights are drawn otherwise than in one process, and matter little: cross entropy is twice as large."""
    processes, flags = LAYOUTS["two pipeline stages"]
    split = figures(run(version_of_megatron_lm, processes, *data_flags, *teacher_flags, *flags.split()))
    whole = figures(run(version_of_megatron_lm, 1, *data_flags, *teacher_flags))
    assert len(split) == 4
    for step, wanted in zip(split, whole, strict=True):
        assert {name: step[name] for name in ("analysis tokens", "final tokens")} == {
            name: wanted[name] for name in ("analysis tokens", "final tokens")
        }
        assert float(step["lm loss"]) == pytest.approx(float(wanted["lm loss"]), rel=2e-2)


def planned(root: Path, out: Path, length: int, long: Literal["window", "drop"] = "window") -> Plan:
    options = PlanOptions(
        sequence_length=length, strategy="best-fit", seed=0, long=long, question_tokens=length // 2, multiple_of=1
    )
    return make_plan(root, read_content(root), out, options)


def test_an_epoch_of_a_plan_trains_each_label_once(both_versions: list[MegatronLM], root: Path, tmp_path: Path) -> None:
    """By the counts that Megatron logs: one sample a step, as many steps as the plan has samples."""
    length = 128
    plan = planned(root, tmp_path / "plan", length)
    steps = plan.split("train").samples
    flags = f"--plan {plan.folder} --seq-length {length} --max-position-embeddings {length} --global-batch-size 1 "
    flags += f"--train-iters {steps} --eval-iters 0 --data-cache-path {tmp_path / 'cache'}"
    first, second = (
        figures(run(version, 1, *flags.split(), without=("--no-create-attention-mask-in-dataloader",)))
        for version in both_versions
    )
    # 0.16 leaves out what is 0.
    shown = [[{name: value for name, value in each.items() if float(value)} for each in run] for run in (first, second)]
    assert shown[0] == shown[1]
    assert len(first) == steps
    for number, name in enumerate(("analysis", "final"), start=1):
        # The second line is the mean of the first two steps.
        trained = sum(float(each.get(f"{name} tokens", 0)) for each in (first[1], *first[1:]))
        spans = [np.fromfile(file, np.uint8) for file in root.glob("train/*_span.bin")]
        assert trained == sum(np.count_nonzero(each == number) for each in spans)


def test_a_plan_without_anything_that_keeps_documents_apart_is_refused(
    megatron_lm: Path, root: Path, tmp_path: Path
) -> None:
    plan = planned(root, tmp_path / "plan", LENGTH)
    with pytest.raises(AssertionError, match="nothing would keep the documents of a sample apart"):
        run(launcher(megatron_lm, "0.16.1"), 1, f"--plan={plan.folder}", f"--data-cache-path={tmp_path / 'cache'}")
    with pytest.raises(SpanloomError, match="Megatron's flags name data too"):
        pretrain_gpt.trained_content(["--data-path", f"{root}/train/shard_00_tokens"], plan.folder)


def test_a_plan_without_samples_to_train_on_is_refused(tmp_path: Path) -> None:
    short, long = ([[random_document(np.random.default_rng(0), length)]] for length in (20, 50))
    write_dataset(tmp_path / "root", {"train": long, "valid": short})
    plan = planned(tmp_path / "root", tmp_path / "plan", LENGTH, long="drop")
    with pytest.raises(DatasetError, match="no samples of train; it has samples of valid"):
        pretrain_gpt.trained_content(["--lr", "1"], plan.folder)
    assert pretrain_gpt.trained_content(["--skip-train"], plan.folder) == plan.dataset


def test_a_plan_without_samples_to_evaluate_on_is_refused_before_the_training(tmp_path: Path) -> None:
    short, long = ([[random_document(np.random.default_rng(0), length)]] for length in (20, 50))
    write_dataset(tmp_path / "root", {"train": short, "valid": long})
    plan = planned(tmp_path / "root", tmp_path / "plan", LENGTH, long="drop")
    for flags in ([], ["--eval-iters", "2"], ["--eval-iters=2"]):
        with pytest.raises(DatasetError, match="no samples of valid to evaluate on"):
            pretrain_gpt.trained_content(flags, plan.folder)
    for flags in (["--eval-iters", "0"], ["--eval-iters=0"]):
        assert pretrain_gpt.trained_content(flags, plan.folder) == plan.dataset


def test_a_plan_whose_dataset_was_moved(
    version_of_megatron_lm: MegatronLM, root: Path, data_flags: list[str], tmp_path: Path
) -> None:
    """`--dataset-root` says where it is; else the message names the flag. The same run gives the same figures."""
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(root, here)
    plan = planned(here, tmp_path / "plan", LENGTH)
    flags = [f"--plan={plan.folder}", f"--data-cache-path={tmp_path / 'cache'}"]
    masks = ("--no-create-attention-mask-in-dataloader",)
    first = figures(run(version_of_megatron_lm, 1, *flags, without=masks))
    here.rename(there)
    with pytest.raises(DatasetError, match="--dataset-root"):
        pretrain_gpt.trained_content([], plan.folder)
    assert figures(run(version_of_megatron_lm, 1, *flags, f"--dataset-root={there}", without=masks)) == first
    with pytest.raises(DatasetError, match="leave it out, or give --plan"):
        pretrain_gpt.trained_content(data_flags, None, there)


def test_a_run_that_was_saved_goes_on_from_there(
    version_of_megatron_lm: MegatronLM, data_flags: list[str], tmp_path: Path
) -> None:
    """Megatron's checkpoints, with the tokenizer that is the dataset's own."""
    save = ["--save", str(tmp_path / "checkpoint"), "--save-interval", "1", "--ckpt-format", "torch"]
    unbroken = figures(run(version_of_megatron_lm, 1, *data_flags))
    run(version_of_megatron_lm, 1, *data_flags, *save, "--exit-interval", "1")
    load = ["--load", str(tmp_path / "checkpoint")]
    resumed = figures(run(version_of_megatron_lm, 1, *data_flags, *load))
    assert resumed[-1] == unbroken[-1], "valid after the last step"


def test_a_torn_index_of_the_blend_names_the_file(megatron_lm: Path, data_flags: list[str], tmp_path: Path) -> None:
    version = launcher(megatron_lm, "0.16.1")
    flags = [data_flags[0], f"--data-cache-path={tmp_path / 'cache'}"]
    run(version, 1, *flags)
    (torn, *_) = sorted((tmp_path / "cache").glob("*BlendedDataset*dataset_index.npy"))
    torn.write_bytes(torn.read_bytes()[:-1])
    with pytest.raises(AssertionError) as failed:
        run(version, 1, *flags, "--seed=1234")
    assert "a cached sample index cannot be read" in str(failed.value)
    assert str(torn) in str(failed.value)


def test_the_model_has_the_dataset_s_vocabulary_and_ids(root: Path) -> None:
    """Padded already: with gpt-oss's 201,088 it stays so for every number of tensor-parallel ranks that divides it."""
    content = read_content(root)
    assert pretrain_gpt.default_flags(content, []) == [
        "--calculate-per-token-loss",
        "--vocab-size",
        str(VOCAB_SIZE),
        "--make-vocab-size-divisible-by",
        "1",
    ]
    for flags in (["--tokenizer-type", "X"], ["--tokenizer-type=X"]):
        assert pretrain_gpt.default_flags(content, flags) == ["--calculate-per-token-loss"]


def test_a_script_that_hands_another_loss_mask_to_its_loss_is_refused() -> None:
    step = SpanStep(SpanWeights({"analysis": 1.0, "final": 1.0}), 2)
    loss_func = step.loss_func(lambda *_: pytest.fail("the stock loss ran"))
    with pytest.raises(DatasetError, match="another loss mask than the one that get_batch returned"):
        loss_func(torch.ones(1, 4), torch.ones(1, 4))


def test_our_flags_are_taken_out_and_megatron_s_are_left_as_they_are() -> None:
    options = pretrain_gpt.parse(["--lr", "1e-3", "--megatron-lm", "there", "--bf16", "--span-weights=final=2"])
    assert options.megatron_flags == ("--lr", "1e-3", "--bf16")
    assert (str(options.megatron_lm), options.span_weights) == ("there", "final=2")
    assert pretrain_gpt.parse(["--span", "x"]).megatron_flags == ("--span", "x"), "no abbreviations"


def test_the_dataset_is_found_however_megatron_is_told_of_it(root: Path, tmp_path: Path) -> None:
    prefix = f"{root}/train/shard_00_tokens"
    (tmp_path / "paths.txt").write_text(f"3 {prefix}")
    (tmp_path / "blend.json").write_text(json.dumps({"train": ["1", prefix], "valid": None, "test": prefix}))
    for flags in (
        ["--data-path", prefix],
        ["--data-path", "0.3", prefix, "0.7", f"{root}/train/shard_01_tokens", "--lr", "1"],
        ["--valid-data-path", prefix],
        ["--data-args-path", str(tmp_path / "paths.txt")],
        [f"--per-split-data-args-path={tmp_path / 'blend.json'}"],
    ):
        assert pretrain_gpt.trained_content(flags) == read_content(root)


def refused(*flags: str) -> str:
    with pytest.raises(SpanloomError) as caught:
        pretrain_gpt.trained_content(flags)
    return str(caught.value)


def test_a_command_line_without_a_dataset_or_with_two_kinds_is_refused(root: Path, tmp_path: Path) -> None:
    prefix = f"{root}/train/shard_00_tokens"
    assert "no dataset was named" in refused("--lr", "1")
    assert "--mock-data trains on other data" in refused("--mock-data", "--data-path", prefix)
    assert "there is no such folder" in refused("--data-path", f"{tmp_path}/gone/train/shard_00_tokens")
    for wrong in (root, root / "train", root / "train/shard_00_span"):
        assert f"not the prefix of a shard's tokens\n  where: {wrong}\n" in refused("--data-path", "1", str(wrong))
    (tmp_path / "blend.json").write_text("[1, 2]")
    assert "the blend cannot be read" in refused(f"--per-split-data-args-path={tmp_path / 'blend.json'}")
    assert "the blend cannot be read" in refused(f"--data-args-path={tmp_path / 'gone'}")
    other = write_dataset(tmp_path / "other", {"train": [[random_document(np.random.default_rng(1), 40)]]})
    write_manifest(other, shards=1, span_names=["context", "reasoning", "answer"])
    assert "its span_names is" in refused("--data-path", "1", prefix, "1", f"{other}/train/shard_00_tokens")


def test_the_entry_says_what_is_missing(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--data-path", f"{root}/train/shard_00_tokens"]
    assert pretrain_gpt.main([*flags, "--megatron-lm", str(tmp_path)]) == DatasetError.exit_code
    error = capsys.readouterr().err
    assert "there is no pretrain_gpt.py in this folder" in error
    assert str(tmp_path) in error
    assert pretrain_gpt.main(flags) == DatasetError.exit_code
    assert "--megatron-lm DIR" in capsys.readouterr().err
