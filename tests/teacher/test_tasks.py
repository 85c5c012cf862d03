"""A dataset scored by several tasks: the signals are those of one run, byte for byte; what does not fit is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spanloom
from conftest import Cli
from spanloom.api.scoring import checked, scored
from spanloom.errors import EXIT_FAILURE, EXIT_FINDINGS, ArtifactError, ConflictError, SpanloomError
from spanloom.report.progress import Progress
from spanloom.steps import join_teacher
from spanloom.storage.publishing import publish_folder
from spanloom.storage.staging import list_objects
from spanloom.teacher.signals import TeacherError
from spanloom.teacher.sources.options import ScoringOptions, TeacherOptions
from support import sources
from support.chat_models import write_model
from support.model_datasets import record, stored, without_reasoning, write_conversations
from support.nightly import nightly
from support.object_stores import Place
from support.pipeline_inputs import run
from support.teachers import write_teacher

QUIET = Progress.given(False)
SHARDS, K = 3, 3
CONTEXT = 300


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A dataset of three shards, its teacher, signals of one run; some documents are longer than the context."""
    folder = tmp_path_factory.mktemp("tasks")
    rows = [[stored(without_reasoning(record(seed + 12 * shard))) for seed in range(12)] for shard in range(SHARDS)]
    source = write_conversations(folder / "source", rows)
    bare = write_model(folder / "bare")
    spanloom.build(source, folder / "root", model=bare, valid_fraction=0.2, max_rejects="100%", allow_unknown_sha=True)
    shutil.copytree(bare, folder / "model")
    model = write_teacher(folder / "model", context=CONTEXT)
    content, _ = scored(str(folder / "root"), str(folder / "signals"), ScoringOptions(model=model, top_k=K), QUIET)
    assert content.without["longer_than_context"] > 1
    assert {shard for _, shard in content.places} == {*range(SHARDS)}
    return folder / "root", model, folder / "signals"


def one_task(cli: Cli, root: object, model: Path, out: object, work: object, task: int, tasks: int, *more: str) -> None:
    words = ("--root", root, "--model", model, "--out", out, "--inventory", f"{work}/{task}", "--top-k", K, *more)
    run(cli, "step", "score-teacher", *words, "--shard", task, "--shards", tasks, "--quiet")


def validated(cli: Cli, root: object, out: object, work: object, task: int) -> None:
    words = ("--root", root, "--out", out, "--inventory", f"{work}/{task}", "--validated", f"{work}/{task}.validated")
    run(cli, "step", "validate-teacher", *words, "--quiet")


def same_as_one_run(made: Path, whole: Path) -> None:
    assert {path.name for path in made.iterdir()} == {path.name for path in whole.iterdir()}
    assert sources.data_files(made) == sources.data_files(whole)
    assert (made / "without.jsonl").read_bytes() == (whole / "without.jsonl").read_bytes()
    contents = [json.loads((each / "teacher.json").read_text())["content"] for each in (made, whole)]
    assert contents[0] == contents[1]


@pytest.mark.parametrize("tasks", [*map(nightly, (1, 2)), SHARDS + 1])
def test_tasks_make_the_signals_of_one_run(cli: Cli, made: tuple[Path, Path, Path], tmp_path: Path, tasks: int) -> None:
    """The list of `spanloom tasks`, run in the order of its stages; with four tasks, one has no shard."""
    root, model, whole = made
    parameters = (f"dataset_root={root}", f"teacher_uri={model}", f"signals_root={tmp_path}/signals", f"top_k={K}")
    listed = run(cli, "tasks", "teacher", *parameters, "--work", tmp_path / "work", "--shards", tasks)
    for stage in json.loads(listed)["stages"]:
        for index in range(stage["count"]):
            words = [word.replace("{index}", str(index)) for word in stage["argv"][1:]]
            run(cli, *words, "--executor-input", json.dumps({"outputs": {}}))
    same_as_one_run(tmp_path / "signals", whole)
    assert checked(str(tmp_path / "signals"), str(root), TeacherOptions(model=model), 2, "independent", QUIET).clean


def test_a_task_stops_at_more_documents_without_signals_than_allowed(
    cli: Cli, made: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    root, model, whole = made
    first = json.loads((whole / "without.jsonl").read_text().splitlines()[0])
    words = ("--root", root, "--model", model, "--out", tmp_path / "signals", "--inventory", tmp_path / "0")
    rest = ("--top-k", K, "--shard", 0, "--shards", 1, "--max-rejects", 0, "--quiet")
    done = cli("step", "score-teacher", *words, *rest)
    assert done.returncode == EXIT_FAILURE
    assert f"{first['split']} shard {first['shard']}, document {first['sequence']}" in done.stderr
    assert not (tmp_path / "0").exists()


@pytest.mark.parametrize("place", ["s3", nightly("gs")], indirect=True)
def test_so_do_they_in_a_bucket(cli: Cli, place: Place, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """A second try of a task finds its parts there."""
    root, model, whole = made
    publish_folder(root, place.uri / "root", last="manifest.json")
    out, work = f"{place.uri}/signals", f"{place.uri}/work"
    for task in (0, 1, 1):
        one_task(cli, f"{place.uri}/root", model, out, work, task, 2)
        validated(cli, f"{place.uri}/root", out, work, task)
    inventories = [word for task in range(2) for word in ("--inventory", f"{work}/{task}.validated")]
    for _ in range(2):
        run(cli, "step", "join-teacher", *inventories, "--root", f"{place.uri}/root", "--out", out)
    there = {str(each.uri).removeprefix(f"{place.uri}/signals/") for each in list_objects(place.uri / "signals")}
    assert there == {path.relative_to(whole).as_posix() for path in whole.rglob("*") if path.is_file()}
    assert checked(out, str(root), TeacherOptions(model=model), 2, "independent", QUIET).clean


@pytest.fixture(scope="module")
def scored_by_two(cli: Cli, made: tuple[Path, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, model, _ = made
    folder = tmp_path_factory.mktemp("two")
    for task in range(2):
        one_task(cli, root, model, folder / "signals", folder / "work", task, 2)
        validated(cli, root, folder / "signals", folder / "work", task)
    return folder


def test_a_task_that_was_killed_while_it_put_its_files_in_place(
    cli: Cli, made: tuple[Path, Path, Path], scored_by_two: Path, tmp_path: Path
) -> None:
    root, model, whole = made
    shutil.copytree(scored_by_two, tmp_path / "two")
    signals, work = tmp_path / "two/signals", tmp_path / "two/work"
    (task,) = signals.glob(".tasks/01-of-02")
    (task / "train").mkdir(exist_ok=True)
    (signals / "train/shard_01_own.bin").rename(task / "train/shard_01_own.bin")
    (work / "1").unlink()
    one_task(cli, root, model, signals, work, 1, 2)
    validated(cli, root, signals, work, 1)
    inventories = [str(work / f"{task}.validated") for task in range(2)]
    join_teacher.run(inventories=inventories, root=str(root), out=str(signals))
    same_as_one_run(signals, whole)


def changed(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def other_teacher(value: Any) -> None:
    value["content"]["teacher"]["dtype"] = "bfloat16"


def other_k(value: Any) -> None:
    value["content"]["k"] += 1


def other_dataset(value: Any) -> None:
    value["content"]["dataset"]["content_sha256"] = "0" * 64


def other_canary(value: Any) -> None:
    value["canary"]["logprobs"] = (np.array(value["canary"]["logprobs"]) - 0.01).tolist()


def no_canary(value: Any) -> None:
    del value["canary"]


def not_validated(value: Any) -> None:
    value["validated"] = None


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (not_validated, ArtifactError, "these signals were not validated"),
        (other_teacher, ArtifactError, "teacher differs from that of the first task"),
        (other_k, ArtifactError, "k differs from that of the first task"),
        (other_dataset, ArtifactError, "signals of another dataset"),
        (other_canary, TeacherError, "scores one document otherwise than that of the first: by 0.01"),
        (no_canary, ArtifactError, "no inventory of signals: canary"),
    ],
)
def test_tasks_that_do_not_fit_are_refused(
    made: tuple[Path, Path, Path],
    scored_by_two: Path,
    tmp_path: Path,
    change: Callable[[Any], None],
    error: type[SpanloomError],
    said: str,
) -> None:
    shutil.copytree(scored_by_two, tmp_path / "two")
    changed(tmp_path / "two" / "work" / "1.validated", change)
    refused(made[0], tmp_path / "two", ["0", "1"], error, said)


def refused(root: Path, folder: Path, tasks: list[str], error: type[SpanloomError], said: str) -> None:
    inventories = [str(folder / "work" / f"{task}.validated") for task in tasks]
    with pytest.raises(error, match=said):
        join_teacher.run(inventories=inventories, root=str(root), out=str(folder / "signals"))
    assert not (folder / "signals/teacher.json").exists()


def test_signals_with_a_finding_are_not_promoted(
    cli: Cli, made: tuple[Path, Path, Path], scored_by_two: Path, tmp_path: Path
) -> None:
    """An array that was torn after score-teacher had published it: no validated inventory, and so no manifest."""
    shutil.copytree(scored_by_two, tmp_path / "two")
    signals, work = tmp_path / "two/signals", tmp_path / "two/work"
    own = signals / "train/shard_01_own.bin"
    own.write_bytes(bytes(reversed(own.read_bytes())))
    (work / "1.validated").unlink()
    words = ("--root", made[0], "--out", signals, "--inventory", work / "1", "--validated", work / "1.validated")
    done = cli("step", "validate-teacher", *words, "--quiet")
    assert done.returncode == EXIT_FINDINGS
    assert "shard_01_own.bin" in done.stdout
    assert not (work / "1.validated").exists()


def test_missing_and_repeated_tasks_and_missing_files_are_refused(
    made: tuple[Path, Path, Path], scored_by_two: Path, tmp_path: Path
) -> None:
    root, _, whole = made
    shutil.copytree(scored_by_two, tmp_path / "two")
    refused(root, tmp_path / "two", ["0"], ArtifactError, "no task scored train of shard 1")
    refused(root, tmp_path / "two", ["0", "1", "1"], ArtifactError, "a shard was scored twice")
    (tmp_path / "two/signals/train/shard_02_rest.bin").write_bytes(b"")
    refused(root, tmp_path / "two", ["0", "1"], ArtifactError, r"train/shard_02_rest\.bin is missing or has not")
    shutil.copytree(whole, tmp_path / "other/signals")
    changed(tmp_path / "other/signals/teacher.json", other_teacher)
    with pytest.raises(ConflictError, match="other signals"):
        join_teacher.run(
            inventories=[str(scored_by_two / f"work/{task}.validated") for task in range(2)],
            root=str(root),
            out=str(tmp_path / "other/signals"),
        )


def test_a_task_that_is_not_there_is_refused(cli: Cli, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    root, model, _ = made
    with pytest.raises(AssertionError, match="there is no task 2 of 2"):
        one_task(cli, root, model, tmp_path / "signals", tmp_path / "work", 2, 2)
    assert not (tmp_path / "signals").exists()
