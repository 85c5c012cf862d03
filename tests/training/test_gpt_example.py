"""The example of training on spans: it logs what it says, resumes exactly, and is the same on two processes."""

import json
import os
import shutil
import signal
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from spanloom.errors import DatasetError
from spanloom.training.loss import span_weights
from spanloom.training.runs import script
from support import examples, warm
from support.nightly import NIGHTLY
from support.ranks import run_ranks
from support.token_datasets import EOD, VOCAB_SIZE, Document, random_document, write_dataset, write_manifest

STEPS = 8
OPTIONS = {
    "steps": STEPS,
    "sequence-length": 24,
    "global-batch-size": 8,
    "micro-batch-size": 2,
    "hidden": 32,
    "layers": 1,
    "eval-interval": 4,
    "save-interval": 3,
    "span-weights": "analysis=0.5,final=2.0",
}
GPT = examples.load(examples.GPT)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards of train, which 64 samples go through more than once, and a little valid."""
    random = np.random.default_rng(0)

    def shards(documents: int) -> Any:
        return [[random_document(random, int(length)) for length in random.integers(5, 60, documents)] for _ in "ab"]

    return write_dataset(tmp_path_factory.mktemp("training") / "root", {"train": shards(15), "valid": shards(6)})


def arguments(root: Path, output: Path, **changes: Any) -> list[str]:
    options = {**OPTIONS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    options |= {"root": root, "output": output, "index-cache": output.parent / "index"}
    return [f"--{name}={value}" for name, value in options.items()]


def ended(root: Path, output: Path, **changes: Any) -> "subprocess.CompletedProcess[str]":
    """The run as a user starts it, to its end."""
    return warm.run("support.script", examples.GPT, *arguments(root, output, **changes), env=os.environ)


def started(root: Path, output: Path) -> warm.Piped:
    """The nightly run takes fresh processes: the last bits of a sum differ between forks."""
    return warm.piped("support.script", examples.GPT, *arguments(root, output), env=os.environ, cold=NIGHTLY)


def finish(run: warm.Piped) -> None:
    _, errors = run.communicate()
    assert run.returncode == 0, errors


def train(root: Path, output: Path, **changes: Any) -> None:
    run = ended(root, output, **changes)
    assert run.returncode == 0, run.stderr


def log(output: Path) -> list[dict[str, Any]]:
    """The log without what a clock says."""
    records = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def assert_nearly_equal(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    for mine, other in zip(found, wanted, strict=True):
        assert mine.pop("kind") == other.pop("kind")
        assert mine == pytest.approx(other, rel=2e-5)


@pytest.fixture(scope="module")
def unbroken(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("unbroken") / "output"
    finish(started(root, output))
    return output


def test_every_step_and_evaluation_is_logged_and_the_figures_fit_each_other(unbroken: Path) -> None:
    records = log(unbroken)
    assert [record["step"] for record in records if record["kind"] == "train"] == list(range(1, STEPS + 1))
    assert [record["step"] for record in records if record["kind"] == "valid"] == [4, 8]
    for record in records:
        tokens = record["analysis_tokens"] + record["final_tokens"]
        assert record["loss"] == pytest.approx(0.5 * record["analysis_loss"] + 2.0 * record["final_loss"], rel=1e-6)
        # w_s · N / N_s, from the definition
        assert record["analysis_weight"] == pytest.approx(0.5 * tokens / record["analysis_tokens"])
        assert record["final_weight"] == pytest.approx(2.0 * tokens / record["final_tokens"])
    (events,) = (unbroken / "tensorboard").iterdir()
    board = EventAccumulator(str(events)).Reload()
    shown = [(event.step, event.value) for event in board.Scalars("train/analysis_loss")]
    expected = [(r["step"], pytest.approx(r["analysis_loss"])) for r in records if r["kind"] == "train"]
    assert shown == expected


def test_the_last_two_checkpoints_are_kept(unbroken: Path) -> None:
    kept = sorted(path.relative_to(unbroken / "checkpoints").as_posix() for path in unbroken.rglob("checkpoints/*/*"))
    assert kept == [f"step_{step:08d}/{name}" for step in (6, 8) for name in ("checkpoint.json", "rank_00.pt")]


def test_a_killed_run_goes_on_with_the_batches_and_losses_of_an_unbroken_one(
    root: Path, unbroken: Path, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    run = started(root, output)
    for line in run.stdout:
        if line.split()[:2] == ["train", "5"]:  # two steps after the checkpoint of step 3
            run.send_signal(signal.SIGKILL)
            break
    run.communicate()
    assert run.returncode == -signal.SIGKILL
    assert [record["step"] for record in log(output) if record["kind"] == "train"][-1] >= 5
    finish(started(root, output))
    if NIGHTLY:
        assert log(output) == log(unbroken), "bit for bit, and no step twice"
    assert_nearly_equal(log(output), log(unbroken))


def test_two_processes_make_the_losses_of_one(root: Path, unbroken: Path, tmp_path: Path) -> None:
    done = run_ranks("support.script", examples.GPT, *arguments(root, tmp_path / "output"), ranks=2)
    assert not any(rank.returncode for rank in done), "\n".join(rank.stderr for rank in done)
    assert_nearly_equal(log(tmp_path / "output"), log(unbroken))


def test_bfloat16_stays_close_to_float32(root: Path, unbroken: Path, tmp_path: Path) -> None:
    train(root, tmp_path / "output", dtype="bf16")
    for mine, exact in zip(log(tmp_path / "output"), log(unbroken), strict=True):
        assert mine["analysis_tokens"] == exact["analysis_tokens"]
        assert mine["loss"] == pytest.approx(exact["loss"], rel=1e-2)


@pytest.mark.parametrize(("trained", "other"), [("analysis", "final"), ("final", "analysis")])
def test_the_span_with_the_weight_is_learned_and_the_other_is_not(tmp_path: Path, trained: str, other: str) -> None:
    """Reasoning counts up through 0 … 9, answers through 20 … 29: each is learned in a few steps, from its own loss."""
    span = np.array([0] * 4 + [1] * 14 + [2] * 14 + [0], dtype=np.uint8)
    tokens = np.concatenate([np.arange(4) + 40, np.arange(14) % 10, 20 + np.arange(14) % 10, [0, EOD]])[:-1]
    tokens[-1] = EOD
    # Label-aligned: position t holds the span of token t + 1.
    labels = np.append(span[1:], 0).astype(np.uint8)
    document = Document(tokens.astype(np.int32), (labels > 0).astype(np.uint8), labels)
    root = write_dataset(tmp_path / "root", {"train": [[document] * 20]})
    weights = {"span_weights": f"{trained}=1.0,{other}=0.0"}
    run = {"steps": 40, "warmup": 2, "learning_rate": 0.01, "sequence_length": 33, "save_interval": 40}
    train(root, tmp_path / "output", **run, **weights)
    records = log(tmp_path / "output")
    first, last = records[0], records[-1]
    assert first[f"{trained}_loss"] == pytest.approx(np.log(VOCAB_SIZE), abs=0.2)
    assert last[f"{trained}_loss"] < 0.5
    assert last[f"{other}_loss"] > 3.0
    assert last[f"{other}_weight"] == 0.0


def refused(capsys: pytest.CaptureFixture[str], *given: Any, **changes: Any) -> str:
    assert examples.main(examples.GPT, arguments(*given, **changes)) == 1
    return capsys.readouterr().err


def test_a_run_that_would_not_go_on_as_it_began_is_refused(
    root: Path, unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "seed was 1234, now 5" in refused(capsys, root, unbroken, seed=5)
    again = shutil.copytree(root, tmp_path / "root")
    write_manifest(again, shards=2, git_sha="1" * 40)
    assert "dataset was" in refused(capsys, again, unbroken)


def test_a_dataset_that_is_gone_or_pending_at_resume_is_said_to_be(
    root: Path, unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = shutil.copytree(root, tmp_path / "root")
    (again / "manifest.json").rename(again / "manifest.pending.json")
    assert "built but not validated" in refused(capsys, again, unbroken)
    shutil.rmtree(again)
    assert "there is no such folder" in refused(capsys, again, unbroken)


def test_weights_are_those_of_the_spans_that_the_dataset_trains() -> None:
    names = ("context", "reasoning", "call", "answer")
    for given, expected in (
        ("", [1, 1, 1]),
        ("call=0.5", [1, 0.5, 1]),
        ("answer=2,reasoning=0", [0, 1, 2]),
    ):
        weights = span_weights(given, names)
        assert (weights.names, list(weights.by_name.values())) == (names[1:], expected)


@pytest.mark.parametrize("part", ["final=1", "context=1", "call", "call=", "call=much", "call=nan", "call=inf", "=1"])
def test_a_weight_that_cannot_be_read_is_refused_with_the_names_of_the_trained_spans(part: str) -> None:
    with pytest.raises(DatasetError, match=rf"(?s)'{part}' is not SPAN=WEIGHT.*are reasoning, call, answer$"):
        span_weights(f"answer=2,{part}", ("context", "reasoning", "call", "answer"))


def test_a_run_goes_on_with_equal_weights_however_they_are_written_and_refuses_others(
    root: Path, unbroken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is at its end already, so going on does nothing."""
    before = log(unbroken)
    assert examples.main(examples.GPT, arguments(root, unbroken, span_weights="final=2,analysis=.5")) == 0
    assert log(unbroken) == before
    assert "span_weights was" in refused(capsys, root, unbroken, span_weights="final=2")
    assert "trained spans of this dataset are analysis, final" in refused(
        capsys, root, tmp_path / "output", span_weights="answer=2"
    )


def test_a_global_batch_that_cannot_be_cut_is_refused(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "cannot be cut into micro-batches" in refused(capsys, root, tmp_path / "output", global_batch_size=5)


@pytest.mark.parametrize("flag", ["--steps", "--micro-batch-size", "--eval-interval", "--save-interval"])
@pytest.mark.parametrize("value", ["0", "-1"])
def test_a_count_below_one_is_refused(flag: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        script.parse(GPT.Options, "", ["--root", "r", "--index-cache", "i", "--output", "o", flag, value])
    assert f"{flag} is {value}: give 1 or more" in capsys.readouterr().err


def test_a_step_has_the_same_samples_however_many_ranks_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"root": Path(), "index_cache": Path(), "output": Path()}
    for ranks, micro_batch, micro_batches in ((1, 2, 6), (2, 3, 2), (4, 1, 3)):
        monkeypatch.setattr(dist, "get_world_size", lambda ranks=ranks: ranks)
        read: list[int] = []
        for rank in range(ranks):
            monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
            batches = GPT.read(range(200), GPT.Options(micro_batch_size=micro_batch, **places), 84, 200)
            step = list(islice(batches, micro_batches))
            assert {len(micro) for micro in step} == {micro_batch}
            read += [int(sample) for micro in step for sample in micro]
        assert sorted(read) == list(range(84, 96))


@pytest.mark.parametrize("kind", ["dataset_index", "dataset_sample_index"])
def test_a_torn_index_of_the_blend_names_the_file(root: Path, unbroken: Path, tmp_path: Path, kind: str) -> None:
    """Megatron's own, of which shard each sample comes from; the run stops before its first step."""
    shutil.copytree(unbroken.parent / "index", tmp_path / "index")
    torn = sorted((tmp_path / "index").glob(f"*BlendedDataset*{kind}.npy"))
    assert torn
    for path in torn:
        path.write_bytes(path.read_bytes()[:-1])
    run = ended(root, tmp_path / "output")
    assert run.returncode == 1, run.stderr
    assert "a cached sample index cannot be read" in run.stderr
    assert str(torn[0]) in run.stderr
    assert "remedy: remove these files" in run.stderr
