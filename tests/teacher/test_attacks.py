"""Damaged and hostile inputs of the commands of a teacher: each ends with one error that has a remedy or a place."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import spanloom
from spanloom.dataset.root.opened import content_at
from support import warm
from support.chat_models import write_model
from support.drawn_teachers import write_signals
from support.model_datasets import record, stored, without_reasoning, write_conversations
from support.nightly import NIGHTLY, one_in
from support.teachers import write_teacher

K = 4


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A dataset, a model folder that was taught nothing, signals."""
    folder = tmp_path_factory.mktemp("made")
    model = write_model(folder / "model")
    source = write_conversations(folder / "source", [[stored(without_reasoning(record(seed))) for seed in range(6)]])
    root = folder / "root"
    spanloom.build(source, root, model=model, max_rejects="100%", allow_unknown_sha=True)
    write_teacher(model)
    write_signals(root, folder / "signals", content_at(root).tokenizer.vocab_size, k=K)
    return root, model, folder / "signals"


def refused(*words: object, said: str = "") -> None:
    done = warm.run("spanloom", *map(str, words), env=os.environ)
    assert done.returncode in (1, 2, 3, 4), done.stdout + done.stderr
    shown = done.stdout + done.stderr
    assert "Traceback" not in shown
    assert "internal" not in shown.lower()
    assert said in shown.replace("\n", " "), shown


def rewritten(folder: Path, change: Callable[[Any], Any]) -> None:
    path = folder / "teacher.json"
    whole = json.loads(path.read_text())
    whole = change(whole) or whole
    path.write_text(json.dumps(whole))


def grown(value: Any, **changed: Any) -> None:
    value["content"].update(changed)


MANIFESTS: dict[str, Callable[[Any], Any]] = {
    "a list": lambda _: [1],
    "k of nothing": lambda whole: grown(whole, k=0),
    "more k than bytes": lambda whole: grown(whole, k=1 << 40),
    "another version": lambda whole: whole.update(schema_version="spanloom_teacher_v2"),
    "own said to be absent": lambda whole: grown(whole, own=False),
    "a larger vocabulary": lambda whole: whole["content"]["dataset"].update(vocabulary=1 << 20),
    "a shard that is not there": lambda whole: whole["content"]["splits"]["train"]["shards"][0].update(shard=7),
    "more documents": lambda whole: whole["content"]["splits"]["train"]["shards"][0].update(documents=10**9),
    "no positions": lambda whole: whole["content"]["splits"]["train"]["shards"][0].update(positions=0),
    "a file elsewhere": lambda whole: whole["content"]["files"][0].update(path="../../etc/passwd"),
    "another span": lambda whole: grown(whole, spans=["thought"]),
}


@pytest.mark.parametrize("name", one_in(3, MANIFESTS))
def test_a_manifest_that_lies(made: tuple[Path, Path, Path], tmp_path: Path, name: str) -> None:
    root, _, signals = made
    folder = shutil.copytree(signals, tmp_path / "signals")
    rewritten(folder, MANIFESTS[name])
    refused("teacher", "validate", folder, "--dataset", root, "--reader", "independent")


@pytest.mark.parametrize("command", one_in(3, ["rank", "validate", "stats"]))
@pytest.mark.parametrize("name", one_in(3, ["shard_00_own.idx", "shard_00_topk_low.idx", "shard_00_rest.idx"]))
def test_an_index_of_garbage(made: tuple[Path, Path, Path], tmp_path: Path, command: str, name: str) -> None:
    """Of the same size, so that only what reads it can tell."""
    root, _, signals = made
    folder = shutil.copytree(signals, tmp_path / "signals")
    if command == "rank" and "own" not in name:
        return
    path = folder / "train" / name
    path.write_bytes(b"\xff" * path.stat().st_size)
    refused("teacher", command, folder, "--dataset", root)


def garbage(name: str) -> Callable[[Path], Any]:
    return lambda model: (model / name).write_bytes(b"garbage")


def half(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def fewer_tokens(model: Path) -> None:
    write_teacher(model, vocabulary=20)


def no_numbers(model: Path) -> None:
    from safetensors.numpy import load_file, save_file

    weights = load_file(model / "model.safetensors")
    save_file({name: np.full_like(each, np.nan) for name, each in weights.items()}, model / "model.safetensors",
              metadata={"format": "pt"})  # fmt: skip


MODELS: dict[str, Callable[[Path], Any]] = {
    "weights that are none": garbage("model.safetensors"),
    "weights that are torn": half,
    "weights that are no numbers": no_numbers,
    "a config that is none": garbage("config.json"),
    "a tokenizer that is none": garbage("tokenizer.json"),
    "no config": lambda model: (model / "config.json").unlink(),
    "no tokenizer": lambda model: (model / "tokenizer.json").unlink(),
    "no weights": lambda model: (model / "model.safetensors").unlink(),
    "fewer tokens than the tokenizer": fewer_tokens,
    "a context of nothing": lambda model: write_teacher(model, context=0),
}


@pytest.mark.parametrize("name", one_in(3, MODELS))
def test_a_damaged_model(made: tuple[Path, Path, Path], tmp_path: Path, name: str) -> None:
    root, model, _ = made
    folder = shutil.copytree(model, tmp_path / "model")
    MODELS[name](folder)
    refused("teacher", "score", root, "--model", folder, "--top-k", K, "--out", tmp_path / "out")
    assert not (tmp_path / "out/teacher.json").exists()


def test_places_that_are_something_else(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    root, model, signals = made
    (tmp_path / "file").write_bytes(b"")
    score = ("teacher", "score", root, "--model", model)
    cases = (
        (*score, "--top-k", 1 << 20, "--out", tmp_path / "out"),
        (*score, "--out", root / "signals"),
        (*score, "--out", root),
        (*score, "--out", tmp_path / "file"),
        (*score, "--spans", "thought", "--out", tmp_path / "out"),
        ("teacher", "validate", root, "--dataset", signals),
        ("teacher", "validate", tmp_path / "file", "--dataset", root),
        ("teacher", "carry", signals, "--dataset", root, "--missing", "--old-dataset", signals),
        ("teacher", "import", tmp_path / "file", "--from", "distillkit", "--dataset", root, "--out", tmp_path / "o"),
        ("inspect", root, "--teacher", root),
        ("export", root, "--to", "axolotl", "--teacher", root, "--out", tmp_path / "o"),
    )  # fmt: skip
    for words in cases if NIGHTLY else cases[::3]:
        refused(*words)
    folder = shutil.copytree(signals, tmp_path / "signals")
    rewritten(folder, lambda whole: whole["environment"].pop("root"))
    refused("teacher", "carry", folder, "--dataset", root, "--missing", "--out", tmp_path / "o")


SETTINGS = {"d": 300, "k": 2, "exact_k": 2, "residual_bins": [], "delta_encoding": False}
CAPTURES: dict[str, tuple[dict[str, Any], str]] = {
    "words": ({"input_ids": pa.array([["a"]])}, "input_ids is list"),
    "flat bytes": ({"compressed_logprobs": pa.array([[1]], pa.list_(pa.uint8()))}, "compressed_logprobs is list"),
    "no entries": ({"bytepacked_indices": pa.array([None], pa.list_(pa.list_(pa.uint8())))}, "entries"),
    "no ids": ({"input_ids": pa.array([None], pa.list_(pa.uint64()))}, "the row has 0 ids"),
    "holes": ({"compressed_logprobs": pa.array([[[None] * 8]], pa.list_(pa.list_(pa.uint8())))}, "bytes an entry"),
    "ids of 64 bits": ({"input_ids": pa.array([[2**64 - 1, 1]], pa.list_(pa.uint64()))}, "too few to tell"),
}


@pytest.mark.parametrize("name", one_in(3, CAPTURES))
def test_a_damaged_capture(made: tuple[Path, Path, Path], tmp_path: Path, name: str) -> None:
    bytes_ = pa.list_(pa.list_(pa.uint8()))
    columns = {
        "input_ids": pa.array([[1, 2]], pa.list_(pa.uint64())),
        "compressed_logprobs": pa.array([[[0] * 8]], bytes_),
        "bytepacked_indices": pa.array([[[0] * 3]], bytes_),
    }
    changed, said = CAPTURES[name]
    pq.write_table(pa.table(columns | changed), tmp_path / "data_0.parquet")
    (tmp_path / "compression_config.yaml").write_text(json.dumps(SETTINGS))
    words = ("teacher", "import", tmp_path, "--from", "distillkit", "--dataset", made[0], "--out", tmp_path / "out")
    refused(*words, said=said)


@pytest.mark.parametrize(
    "settings",
    ["", "[1", "- 1", json.dumps(SETTINGS | {"d": 10**30}), json.dumps(SETTINGS | {"k": -1}), "d: !!python/name:os.a"],
)
def test_settings_that_are_none(made: tuple[Path, Path, Path], tmp_path: Path, settings: str) -> None:
    (tmp_path / "compression_config.yaml").write_text(settings)
    words = ("teacher", "import", tmp_path, "--from", "distillkit", "--dataset", made[0], "--out", tmp_path / "out")
    refused(*words, said="no settings of DistillKit's compression")
