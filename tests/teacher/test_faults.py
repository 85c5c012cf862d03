"""Faults put into signals, each of which validation must find. Files are written again with hashes that fit, as a wrong
program would have written them."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanloom.dataset.root.opened import content_at
from spanloom.errors import SpanloomError
from spanloom.findings import FindingsError, Report
from spanloom.megatron.independent import IndependentDataset
from spanloom.megatron.indexed import ParallelWriter
from spanloom.megatron.readers import open_with
from spanloom.teacher.coding import encode_logprobs
from spanloom.teacher.score import Scoring, score
from spanloom.teacher.sources.hugging import HuggingFaceTeacher
from spanloom.teacher.validate import validate_signals
from support.teachers import documents, write_scored_dataset, write_teacher

K = 4
Arrays = dict[str, list[np.ndarray]]
"""Values of each document, by the name of the array."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    folder = tmp_path_factory.mktemp("made")
    root, model = write_scored_dataset(folder)
    score(root, folder / "signals", teacher_of(root, model), Scoring(k=K))
    return root, model, folder / "signals"


def teacher_of(root: Path, model: Path) -> HuggingFaceTeacher:
    return HuggingFaceTeacher(model, vocabulary=content_at(root).tokenizer.vocab_size)


def read(folder: Path) -> Arrays:
    found = {}
    for path in sorted((folder / "train").glob("*.idx")):
        opened = IndependentDataset(path.with_suffix(""))
        found[path.stem.removeprefix("shard_00_")] = [opened.get(number).copy() for number in range(len(opened))]
    return found


def write(folder: Path, arrays: Arrays) -> None:
    """Writes the arrays of `train` again, and the manifest with their sizes and hashes."""
    for path in (folder / "train").iterdir():
        path.unlink()
    for name, values in arrays.items():
        prefix = folder / "train" / f"shard_00_{name}"
        with ParallelWriter({name: (prefix, values[0].dtype)}) as writer:
            writer.append(np.array([len(each) for each in values], np.int32), {name: np.concatenate(values)})
            writer.publish()
    rewrite(folder, lambda _: None)


def rewrite(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "teacher.json"
    whole = json.loads(path.read_text())
    for entry in (whole["content"], *whole["content"]["splits"]["train"]["shards"]):
        for file in entry["files"]:
            data = (folder / file["path"]).read_bytes()
            file.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    change(whole["content"])
    path.write_text(json.dumps(whole))


def rolled(values: list[np.ndarray], by: int, width: int) -> list[np.ndarray]:
    """Entries of each document moved by some positions."""
    return [np.roll(each.reshape(-1, width), by, axis=0).reshape(-1) if each.size else each for each in values]


def of_top(change: Callable[[np.ndarray], np.ndarray], *names: str) -> Callable[[Arrays], None]:
    def changed(arrays: Arrays) -> None:
        for name in names:
            arrays[name] = [change(each.reshape(-1, K)).reshape(-1).astype(each.dtype) for each in arrays[name]]

    return changed


def shifted(by: int) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        for name, values in arrays.items():
            arrays[name] = rolled(values, by, K if name.startswith("topk") else 1)

    return change


def permuted(arrays: Arrays) -> None:
    for name, values in arrays.items():
        arrays[name] = [*values[1:], values[0]]


def swapped_documents_of_one_length(arrays: Arrays) -> None:
    """The signals of two documents with equally many labels are exchanged."""
    lengths = [each.size for each in arrays["own"]]
    first, second = next(
        (one, other)
        for one in range(len(lengths))
        for other in range(one + 1, len(lengths))
        if lengths[one] == lengths[other] and not np.array_equal(arrays["own"][one], arrays["own"][other])
    )
    for values in arrays.values():
        values[first], values[second] = values[second], values[first]


def one_shorter(arrays: Arrays) -> None:
    for name, values in arrays.items():
        values[3] = values[3][: -K if name.startswith("topk") else -1]


def own_of_the_next(arrays: Arrays) -> None:
    arrays["own"] = rolled(arrays["own"], 1, 1)


def logits(arrays: Arrays) -> None:
    """Values that are too probable together, as raw logits are."""
    arrays["topk_logp"] = [np.zeros_like(each) for each in arrays["topk_logp"]]


def without_rest(arrays: Arrays) -> None:
    arrays["rest"] = [np.full_like(each, 65535) for each in arrays["rest"]]


def halved(arrays: Arrays) -> None:
    """Log-probabilities at temperature 2."""
    for name in ("topk_logp", "own"):
        arrays[name] = [(each / 2**0.5).astype(np.uint16) for each in arrays[name]]


def other_ids(arrays: Arrays) -> None:
    """Ids of another tokenizer of the same size."""
    size = 1 + max(int(each.max()) for each in arrays["topk_low"] if each.size)
    arrays["topk_low"] = [((each.astype(np.int64) * 7 + 3) % size).astype(np.uint16) for each in arrays["topk_low"]]


def big_ids(arrays: Arrays) -> None:
    arrays["topk_low"] = [each + np.uint16(60_000) for each in arrays["topk_low"]]


def renormalised(arrays: Arrays) -> None:
    """The top k made to sum to 1, as some programs store them."""
    for number, each in enumerate(arrays["topk_logp"]):
        logprobs = -32 * (each.reshape(-1, K) / 65535.0) ** 2
        if len(logprobs):
            logprobs -= np.log(np.exp(logprobs).sum(1, keepdims=True))
        arrays["topk_logp"][number] = encode_logprobs(logprobs).reshape(-1)


FAULTS: dict[str, Callable[[Arrays], None]] = {
    "shifted by one": shifted(1),
    "shifted back by one": shifted(-1),
    "documents permuted": permuted,
    "a label too few": one_shorter,
    "own value of the next label": own_of_the_next,
    "logits": logits,
    "no rest": without_rest,
    "temperature 2": halved,
    "renormalised": renormalised,
    "ids of another tokenizer": other_ids,
    "ids above the vocabulary": big_ids,
    "ranks reversed": of_top(lambda each: each[:, ::-1], "topk_low", "topk_logp"),
    "ranks of ids shifted": of_top(lambda each: np.roll(each, 1, axis=1), "topk_low"),
    "a rank twice": of_top(lambda each: np.concatenate([each[:, :1], each[:, :-1]], axis=1), "topk_low", "topk_logp"),
    "the first rank dropped": of_top(
        lambda each: np.concatenate([each[:, 1:], each[:, -1:]], axis=1), "topk_low", "topk_logp"
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found(made: tuple[Path, Path, Path], tmp_path: Path, name: str) -> None:
    root, _, folder = made
    shutil.copytree(folder, tmp_path / "signals")
    write(tmp_path / "signals", read(folder))
    honest = validate_signals(tmp_path / "signals", root, open_with("independent"))
    assert honest.clean, "writing again changes nothing"
    arrays = read(folder)
    FAULTS[name](arrays)
    write(tmp_path / "signals", arrays)
    report = validate_signals(tmp_path / "signals", root, open_with("independent"))
    assert not report.clean
    assert "alignment" in report.found or not name.startswith("shifted")


def test_exchanged_documents_are_found_by_the_teacher(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Each is right in itself; scored again, neither is."""
    root, model, folder = made
    shutil.copytree(folder, tmp_path / "signals")
    arrays = read(folder)
    swapped_documents_of_one_length(arrays)
    write(tmp_path / "signals", arrays)
    every = len(documents(root))
    report = validate_signals(
        tmp_path / "signals", root, open_with("independent"), teacher=teacher_of(root, model), deep=every
    )
    assert report.found.keys() & {"teacher", "values"}


def test_another_teacher_is_found(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    root, model, folder = made
    shutil.copytree(model, tmp_path / "other")
    other = teacher_of(root, write_teacher(tmp_path / "other", seed=9))
    report = validate_signals(folder, root, open_with("independent"), teacher=other, deep=3)
    assert report.found["teacher"] >= 3


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "train/shard_00_own.bin").write_bytes(b"\0" * 10),
        lambda folder: (folder / "train/shard_00_topk_low.idx").unlink(),
        lambda folder: (folder / "train/shard_00_rest.bin").write_bytes(
            bytes(reversed((folder / "train/shard_00_rest.bin").read_bytes()))
        ),
        lambda folder: (folder / "without.jsonl").write_text('{"split": "train"}\n'),
        lambda folder: rewrite(folder, lambda content: content["without"].update(longer_than_context=1)),
        lambda folder: rewrite(folder, lambda content: content["splits"].pop("train")),
    ],
)
def test_torn_files_are_found(made: tuple[Path, Path, Path], tmp_path: Path, change: Callable[[Path], Any]) -> None:
    root, _, folder = made
    shutil.copytree(folder, tmp_path / "signals")
    change(tmp_path / "signals")
    assert not validate_signals(tmp_path / "signals", root, open_with("independent")).clean


def raise_findings(report: Report) -> None:
    if not report.clean:
        raise FindingsError(report, "signals")


@pytest.mark.parametrize(
    "change",
    [
        lambda whole: whole["content"].update(k=5),
        lambda whole: whole["content"].update(temperature=2),
        lambda whole: whole["content"]["dataset"].update(content_sha256="0" * 64),
        lambda whole: whole.update(schema_version="spanloom_teacher_v9"),
        lambda whole: whole["content"].pop("teacher"),
    ],
)
def test_a_manifest_of_something_else_is_refused(
    made: tuple[Path, Path, Path], tmp_path: Path, change: Callable[[dict[str, Any]], Any]
) -> None:
    root, _, folder = made
    shutil.copytree(folder, tmp_path / "signals")
    path = tmp_path / "signals/teacher.json"
    whole = json.loads(path.read_text())
    change(whole)
    path.write_text(json.dumps(whole))
    with pytest.raises(SpanloomError):
        raise_findings(validate_signals(tmp_path / "signals", root, open_with("independent")))
