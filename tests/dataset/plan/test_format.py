"""Plans as files: the same for the same dataset and options, checked, refused when anything of them or their dataset
changed, and never half finished."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Cli
from spanloom.dataset import manifest
from spanloom.dataset.manifest import ManifestError
from spanloom.dataset.plan.check import check_plan
from spanloom.dataset.plan.format import Plan, PlanOptions, open_plan
from spanloom.dataset.plan.writer import RECORD_NAME, make_plan
from spanloom.errors import ArtifactError, ConflictError, DatasetError
from support import plan_reference, warm
from support.folders import files_of
from support.opened_files import opens_of
from support.token_datasets import random_shards, write_dataset, write_manifest

LENGTHS = [[5, 1, 40, 2, 17, 9, 16, 3], [], [64, 3, 3, 21, 7, 7, 7, 120]]
OPTIONS: dict[str, Any] = {
    "sequence_length": 16,
    "strategy": "best-fit",
    "seed": 0,
    "long": "window",
    "question_tokens": 8,
    "multiple_of": 1,
}


def planned(root: Path, out: Path, **changes: Any) -> Plan:
    return make_plan(root, manifest.read(root).content, out, PlanOptions(**{**OPTIONS, **changes}))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset, `root`, and its plan, `plan`."""
    folder = tmp_path_factory.mktemp("made")
    splits = {"train": random_shards(0, LENGTHS), "valid": random_shards(1, [[8, 1, 30], [3, 12], [40]])}
    planned(write_dataset(folder / "root", splits), folder / "plan")
    return folder


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "root", tmp_path / "root"))


@pytest.fixture
def plan(made: Path, root: Path, tmp_path: Path) -> Plan:
    """A copy that a test may damage, with its own copy of the dataset."""
    folder = Path(shutil.copytree(made / "plan", tmp_path / "plan"))
    said = json.loads((folder / "plan.json").read_text())
    said["environment"]["root"] = str(root)
    (folder / "plan.json").write_text(json.dumps(said))
    return open_plan(folder)


def test_the_same_dataset_and_options_give_the_same_files(root: Path, plan: Plan, tmp_path: Path) -> None:
    again = planned(root, tmp_path / "again")
    one, other = files_of(plan.folder), files_of(again.folder)
    contents = [json.loads(each.pop("plan.json"))["content"] for each in (one, other)]
    assert one == other
    assert contents[0] == contents[1]
    for name, value in {"seed": 1, "strategy": "sequential", "sequence_length": 32, "multiple_of": 2}.items():
        changed = files_of(planned(root, tmp_path / name, **{name: value}).folder)
        assert {key: value for key, value in changed.items() if key != "plan.json"} != one, name


def test_counts_are_those_of_the_slow_loop(root: Path, plan: Plan) -> None:
    for split in ("train", "valid"):
        counts = plan.content.splits[split]
        shards = plan_reference.read_split(plan.folder, root, split)
        documents = [document for shard in shards for document in shard.documents]
        long = [document for document in documents if document.tokens.size > 16]
        assert (counts.documents, counts.long_documents) == (len(documents), len(long))
        windows = [w for document in long for w in plan_reference.windows_of(document.lossmask.tolist(), 16, 8)]
        assert counts.windows == len(windows)
        again = sum(head + question_end - question_begin for head, question_begin, question_end, *_ in windows)
        assert counts.repeated == again
        read = sum(document.tokens.size for document in documents if document.tokens.size <= 16)
        read += again + sum(end - begin for *_, begin, end in windows)
        assert counts.positions == read
        assert counts.samples == sum(len(shard.groups) for shard in shards)
        assert counts.padding == counts.samples * 16 - read
        assert counts.lost_labels == 0
        # What slicing does, position by position.
        sequences = labels = without = 0
        for shard in shards:
            stream = np.concatenate([document.lossmask for document in shard.documents]).tolist()
            for begin in range(0, len(stream) - 15, 16):
                sequences += 1
                cut = begin > 0 and stream[begin - 1] > 0
                for position in range(begin, begin + 16):
                    cut = cut and stream[position] > 0
                    labels, without = labels + stream[position], without + cut
        found = counts.slicing
        assert (found.sequences, found.of_sequences) == (sequences, sequences)
        assert (found.labels, found.without_question) == (labels, without)


@pytest.mark.parametrize("long", ["truncate", "drop"])
def test_labels_that_no_sample_has_are_counted(root: Path, tmp_path: Path, long: str) -> None:
    counts = planned(root, tmp_path / "plan", long=long).content.splits["train"]
    documents = [d for shard in plan_reference.read_split(tmp_path / "plan", root, "train") for d in shard.documents]
    kept = 16 if long == "truncate" else 0
    assert counts.lost_labels == sum(int(d.lossmask[kept:].sum()) for d in documents if d.tokens.size > 16) > 0
    assert (counts.truncated, counts.dropped) == ((5, 0) if long == "truncate" else (0, 5))


def test_a_finished_plan_is_checked_and_left_as_it_is(root: Path, plan: Plan) -> None:
    before = {path: path.stat().st_mtime_ns for path in plan.folder.rglob("*")}
    assert planned(root, plan.folder).content == plan.content
    assert {path: path.stat().st_mtime_ns for path in plan.folder.rglob("*")} == before
    (plan.folder / "train/shard_00_units.bin").write_bytes(
        b"\0" * (plan.folder / "train/shard_00_units.bin").stat().st_size
    )
    with pytest.raises(ConflictError, match=r"train/shard_00_units\.bin is missing or was changed"):
        planned(root, plan.folder)
    with pytest.raises(ArtifactError, match="a file of the plan was changed"):
        open_plan(plan.folder, root, verify=True)


def test_another_plan_or_other_files_are_in_the_way(root: Path, plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match="other options"):
        planned(root, plan.folder, seed=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.txt").write_text("mine")
    with pytest.raises(ConflictError, match="the output directory is not empty: it holds"):
        planned(root, tmp_path / "full")
    assert (tmp_path / "full/notes.txt").read_text() == "mine"
    for inside in (root / "plan", root, tmp_path):
        with pytest.raises(ConflictError, match="contain one another"):
            planned(root, inside)


@pytest.mark.parametrize(("changes", "why"), [
    ({"sequence_length": 1}, "a sample needs 2 tokens"),
    ({"multiple_of": 3}, "not a multiple of multiple_of 3"),
    ({"question_tokens": 16}, "it must be from 1 to 15"),
    ({"question_tokens": 0}, "it must be from 1 to 15"),
    ({"seed": -1}, "below 0"),
    ({"sequence_length": 1 << 31}, "more than a sequence can have"),
])  # fmt: skip
def test_options_that_cannot_be(root: Path, tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(DatasetError, match=why):
        planned(root, tmp_path / "plan", **changes)
    assert not (tmp_path / "plan").exists()


# --- What changed since ----------------------------------------------------------------------------------------------


def test_a_dataset_that_was_built_again_is_another(plan: Plan, root: Path) -> None:
    write_dataset(root.parent / "other", {"train": random_shards(5, LENGTHS), "valid": random_shards(1, [[8]])})
    with pytest.raises(DatasetError, match="the plan of another dataset"):
        open_plan(plan.folder, root.parent / "other")
    with pytest.raises(DatasetError, match="there is no such folder"):
        open_plan(plan.folder, root.parent / "nowhere")
    (root / "manifest.json").unlink()
    with pytest.raises(ManifestError):
        open_plan(plan.folder)


def test_opening_a_plan_again_does_not_read_the_datasets_manifest_again(plan: Plan, root: Path) -> None:
    open_plan(plan.folder)
    assert opens_of(root / "manifest.json", lambda: open_plan(plan.folder)) == 0


def test_an_index_that_is_another_file_is_hashed(plan: Plan, root: Path) -> None:
    index = root / "train/shard_00_span.idx"
    good = index.read_bytes()
    bad = good[:40] + bytes([good[40] ^ 1]) + good[41:]
    index.write_bytes(bad)
    with pytest.raises(DatasetError, match="this index is of another build") as caught:
        open_plan(plan.folder)
    assert caught.value.where == str(index)
    index.write_bytes(good)  # another time of writing, the same bytes
    open_plan(plan.folder)


def test_a_flag_hashes_an_index_that_looks_unchanged(root: Path, tmp_path: Path) -> None:
    plan = planned(root, tmp_path / "own")  # a copied dataset has other inodes than its plan knows
    index = root / "train/shard_00_tokens.idx"
    good, stood = index.read_bytes(), index.stat()
    with index.open("r+b") as stream:
        stream.seek(34)
        stream.write(bytes([good[34] ^ 1]))
    os.utime(index, ns=(stood.st_atime_ns, stood.st_mtime_ns))  # hidden: same file, size and time of writing
    open_plan(plan.folder)
    with pytest.raises(DatasetError, match="this index is of another build"):
        open_plan(plan.folder, verify=True)


@pytest.mark.parametrize(
    "name", ["train/shard_00_tokens.bin", "train/shard_02_span.bin", "valid/shard_01_lossmask.bin"]
)
def test_data_of_another_size_are_refused(plan: Plan, root: Path, name: str) -> None:
    with (root / name).open("ab") as stream:
        stream.write(b"\0")
    with pytest.raises(DatasetError, match="supervision would not match its tokens"):
        open_plan(plan.folder)
    (root / name).unlink()
    with pytest.raises(DatasetError, match="a file of the dataset is missing"):
        open_plan(plan.folder)


@pytest.mark.parametrize("name", ["units", "samples", "windows"])
def test_a_file_of_the_plan_that_is_not_whole_is_refused(plan: Plan, name: str) -> None:
    path = plan.folder / f"train/shard_00_{name}.bin"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ArtifactError, match="missing or has not") as caught:
        open_plan(plan.folder)
    assert caught.value.where == str(path)


@pytest.mark.parametrize(("damage", "why"), [
    (lambda said: said.update(schema_version="spanloom_plan_v2"), "schema_version"),
    (lambda said: said["content"].pop("options"), "content.options"),
    (lambda said: said["content"]["options"].update(strategy="worst-fit"), "content.options.strategy"),
    (lambda said: said["content"]["options"].update(sequence_length="16"), "content.options.sequence_length"),
    (lambda said: said["content"].update(more=1), "content.more"),
    (lambda said: said["content"]["splits"]["train"]["shards"][0].update(samples=3), "has not"),
    (lambda said: said["content"]["splits"]["train"]["shards"][0].update(windows=0), "are not those that its counts"),
    (lambda said: said["content"]["splits"]["train"]["shards"][0]["files"][0].update(path="../x"), "are not those"),
])  # fmt: skip
def test_a_damaged_plan_json_is_told(plan: Plan, damage: Callable[[Any], Any], why: str) -> None:
    said = json.loads((plan.folder / "plan.json").read_text())
    damage(said)
    (plan.folder / "plan.json").write_text(json.dumps(said))
    with pytest.raises(ArtifactError, match=why):
        open_plan(plan.folder)


def test_no_plan_json_is_no_plan(plan: Plan) -> None:
    (plan.folder / "plan.json").write_text("{")
    with pytest.raises(ArtifactError, match="the plan is not JSON"):
        open_plan(plan.folder)
    (plan.folder / "plan.json").unlink()
    with pytest.raises(ArtifactError, match=r"there is no plan\.json"):
        open_plan(plan.folder)
    os.mkfifo(plan.folder / "plan.json")
    with pytest.raises(ArtifactError, match="a FIFO"):
        open_plan(plan.folder)


# --- The check -------------------------------------------------------------------------------------------------------


def damaged(plan: Plan, name: str, change: Callable[[Any], Any]) -> None:
    """Changes an array of the first shard in place, as lists."""
    path = plan.folder / f"train/shard_00_{name}.bin"
    dtype = {"units": "<i4", "samples": "<i8", "windows": "<i4"}[name]
    values = np.fromfile(path, dtype)
    values = values.reshape(-1, 6) if name == "windows" else values
    change(values)
    path.write_bytes(values.tobytes())


@pytest.mark.parametrize(("name", "change", "why"), [
    ("units", lambda v: v.__setitem__(0, v[1]), "are in two samples"),
    ("units", lambda v: v.__setitem__(0, 10_000), "neither a document nor a window"),
    ("units", lambda v: v.__setitem__(0, -1), "neither a document nor a window"),
    ("units", lambda v: v.__setitem__(int(np.flatnonzero(v == 0)[0]), 2), "too long for one|is in no sample"),
    ("samples", lambda v: v.__setitem__(0, 1), "do not follow one another"),
    ("samples", lambda v: v.__setitem__(1, v[2]), "do not follow one another|positions, more than"),
    ("samples", lambda v: v.__setitem__(-1, v[-1] + 1), "after the last unit"),
    ("samples", lambda v: v.__setitem__(-1, v[-1] - 1), "end at unit|do not follow"),
    ("windows", lambda v: v.__setitem__((0, 0), 0), "not the windows of the documents"),
    ("windows", lambda v: v.__setitem__((-1, 5), v[-1, 5] - 1), "labels of document|is invalid"),
    ("windows", lambda v: v.__setitem__((-1, 4), v[-1, 4] - 1), "is invalid|labels of document"),
    ("windows", lambda v: v.__setitem__((int(np.flatnonzero(v[:, 1])[0]), slice(1, 4)), 0), "without its question"),
    ("windows", lambda v: v.__setitem__((-1, 5), 10_000), "is invalid"),
])  # fmt: skip
def test_the_check_finds_what_is_wrong(
    root: Path, plan: Plan, name: str, change: Callable[[Any], Any], why: str
) -> None:
    check_plan(plan)
    damaged(plan, name, change)
    with pytest.raises(ArtifactError, match=why):
        check_plan(plan)


@pytest.mark.parametrize(
    "count", ["documents", "long_documents", "windows", "samples", "positions", "padding", "repeated"]
)
def test_the_check_counts_again(plan: Plan, count: str) -> None:
    train = plan.content.splits["train"]
    wrong = train.model_copy(update={count: getattr(train, count) + 1})
    content = plan.content.model_copy(update={"splits": {**plan.content.splits, "train": wrong}})
    with pytest.raises(ArtifactError, match=f"^{count} of train is"):
        check_plan(Plan(folder=plan.folder, root=plan.root, content=content, dataset=plan.dataset))


def test_arrays_that_do_not_lie_parallel_are_not_planned(root: Path, tmp_path: Path) -> None:
    """With a manifest that says so: lengths of one array are others, its bytes as many."""
    index = root / "train/shard_00_span.idx"
    data = bytearray(index.read_bytes())
    lengths = np.frombuffer(data, "<i4", 8, 34)
    lengths[0] += 1
    lengths[2] -= 1
    index.write_bytes(data)
    write_manifest(root, shards=3)
    with pytest.raises(DatasetError, match="span has other lengths than tokens"):
        planned(root, tmp_path / "plan")
    assert not (tmp_path / "plan").exists()


# --- Killed ----------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from spanloom.dataset import manifest
from spanloom.dataset.plan import writer
stage = writer.{stage}
def killed(*given, **options):
    {before}
    os.kill(os.getpid(), signal.SIGKILL)
writer.{stage} = killed
root, out = map(Path, sys.argv[1:])
writer.make_plan(root, manifest.read(root).content, out, writer.PlanOptions(**{options}))
"""


@pytest.mark.parametrize("stage", ["_plan_shard", "check_plan", "finish"])
@pytest.mark.parametrize("before", ["pass", "stage(*given, **options)"])
def test_the_same_command_finishes_what_a_kill_left(
    root: Path, plan: Plan, tmp_path: Path, stage: str, before: str
) -> None:
    out = tmp_path / "killed"
    code = KILLED.format(stage=stage, before=before, options=OPTIONS)
    done = warm.run_code(code, root, out)
    assert done.returncode == -signal.SIGKILL
    assert (out / RECORD_NAME).is_file()
    if stage != "finish" or before == "pass":
        with pytest.raises(ArtifactError, match="not a finished plan"):
            open_plan(out)
    assert planned(root, out).content == plan.content
    wanted, found = files_of(plan.folder), files_of(out)
    assert {**wanted, "plan.json": b""} == {**found, "plan.json": b""}


def test_other_options_clear_what_a_kill_left(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    code = KILLED.format(stage="check_plan", before="pass", options=OPTIONS)
    warm.run_code(code, root, out)
    other = planned(root, out, sequence_length=32)
    assert other.options.sequence_length == 32
    check_plan(other)


# --- The command -----------------------------------------------------------------------------------------------------


def test_the_command_on_a_real_dataset(cli: Cli, demo: Path, tmp_path: Path) -> None:
    shutil.copytree(demo, tmp_path / "synth_kd")
    done = cli("plan", "synth_kd", "--sequence-length", 256, "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[-1] == str((tmp_path / "synth_kd_plan_256").resolve())
    assert any(line.startswith("train: ") and "padding" in line for line in said)
    assert any("without their question: 0" in line for line in said)
    plan_reference.check_laws(tmp_path / "synth_kd_plan_256", demo, "train")
    again = cli("plan", "synth_kd", "--sequence-length", 256, "--quiet", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["options"]["sequence_length"] == 256
    other = cli("plan", "synth_kd", "--sequence-length", 256, "--seed", 1, "--quiet", cwd=tmp_path)
    assert other.returncode == 1
    assert "another result of this command: other options" in other.stderr
    assert "--out" in other.stderr
    other = cli("plan", "synth_kd", "--sequence-length", 256, "--seed", 1, "--overwrite", "--json", cwd=tmp_path)
    assert json.loads(other.stdout)["options"]["seed"] == 1
    plan_reference.check_laws(tmp_path / "synth_kd_plan_256", demo, "train")
