"""The task list of raw SYNTH over an object store, run task after task: its dataset is that of one machine.

SPANLOOM_SHARDS are the numbers of shards that the nightly run takes: 1,4,7.
"""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Cli
from spanloom.families.harmony.sample import sample_rows
from spanloom.storage.publishing import publish_file
from spanloom.storage.staging import read_object, stage_folder
from spanloom.storage.uri import Uri
from support import sources
from support.object_stores import BUCKET, Place, amazon_client
from support.raw_synth import tree, write_raw

pytestmark = pytest.mark.slow

SHARDS = [int(number) for number in os.environ.get("SPANLOOM_SHARDS", "1,4,7").split(",")]
Task = Callable[[list[str]], "tuple[int, str]"]


@pytest.fixture
def task(cli: Cli, seaweedfs_place: Place, tmp_path: Path, asset: Path) -> Task:
    """Runs a command of the list; returns its exit code and what it printed."""
    environment = {"SPANLOOM_SCRATCH": str(tmp_path / "scratch"), "O200K_HARMONY_VOCAB_PATH": str(asset)}

    def run(argv: list[str]) -> tuple[int, str]:
        done = cli(*argv, **environment, **seaweedfs_place.environment)
        return done.returncode, done.stdout + done.stderr

    return run


def listed(
    task: Task, place: Uri, raw: Path, shards: int, *, work: Uri | None = None
) -> list[tuple[str, list[list[str]]]]:
    """Each stage with the command of each of its tasks; raw files, dataset and what tasks hand on are at `place`.
    `work`: where the rendered shards are, else beside the dataset."""
    publish_file(raw, place / "raw" / raw.name)
    parameters = (
        *(f"raw_uri={place}/raw/{raw.name}", f"source_uri={place}/source", f"dataset_root={place}/root"),
        *("dataset_name=sample", "valid_fraction=0.1", "deep=8", "workers=1"),
        *((f"work_uri={work}",) if work is not None else ()),
    )
    code, text = task(["tasks", "synth_raw_to_kd", *parameters, "--shards", str(shards), "--work", f"{place}/tasks"])
    assert code == 0, text
    return [
        (
            stage["stage"],
            [[word.replace("{index}", str(index)) for word in stage["argv"][1:]] for index in range(stage["count"])],
        )
        for stage in json.loads(text)["stages"]
    ]


@pytest.mark.nightly  # half a minute each
@pytest.mark.parametrize("shards", SHARDS)
def test_the_raw_sample_is_the_dataset_of_one_machine(
    task: Task, seaweedfs_place: Place, tmp_path: Path, cli: Cli, shards: int
) -> None:
    raw = write_raw(tmp_path / "raw.parquet", sample_rows(), row_group_size=32)
    for stage in listed(task, seaweedfs_place.uri, raw, shards):
        run_stage(task, stage)
    assert_that_of_one_machine(cli, seaweedfs_place.uri, raw, shards, tmp_path)


@pytest.mark.nightly  # half a minute
def test_of_two_numbers_of_shards_at_one_work_place_the_second_is_refused_and_the_first_goes_on(
    task: Task, seaweedfs_place: Place, tmp_path: Path, cli: Cli
) -> None:
    """Two runs, stage by stage in turn, whose rendered shards are to be at one URI."""
    raw = write_raw(tmp_path / "raw.parquet", sample_rows()[:80], row_group_size=8)
    work, places = seaweedfs_place.uri / "work", {shards: seaweedfs_place.uri / f"of_{shards}" for shards in (2, 3)}
    first, second = (listed(task, place, raw, shards, work=work) for shards, place in places.items())
    refused = False
    for stage, other in zip(first, second, strict=True):
        run_stage(task, stage)
        if other[0] == "render-shard":
            answers = [task(argv) for argv in other[1]]
            assert all(code == 1 and "that of a source with 2 shards, this one has 3" in text for code, text in answers)
            refused = True
        elif not refused:
            run_stage(task, other)
    assert refused
    assert_that_of_one_machine(cli, places[2], raw, 2, tmp_path)


def run_stage(task: Task, stage: tuple[str, list[list[str]]]) -> None:
    name, commands = stage
    for argv in commands:
        code, text = task(argv)
        assert code == 0, f"{name}: {text}"


def assert_that_of_one_machine(cli: Cli, place: Uri, raw: Path, shards: int, folder: Path) -> None:
    """Source and dataset at `place` are those that `convert-synth` and `build` make in `folder`."""
    done = cli(
        *("convert-synth", "--raw", raw, "--out", folder / "source", "--assignment", "contiguous"),
        *("--shards", shards, "--dataset", "sample"),
    )
    assert done.returncode == 0, done.stderr
    done = cli(
        *("build", "--source", folder / "source", "--out", folder / "root", "--shards", shards),
        *("--valid-fraction", 0.1, "--deep", 8, "--workers", 1),
    )
    assert done.returncode == 0, done.stderr
    for name in ("source", "root"):
        stage_folder(place / name, folder / "fetched" / name)
    assert tree(folder / "fetched/source") == tree(folder / "source")
    assert sources.data_files(folder / "fetched/root") == sources.data_files(folder / "root")
    assert sources.content(folder / "fetched/root") == sources.content(folder / "root")


def test_a_finding_in_one_shard_ends_its_task_alone_and_nothing_is_promoted(
    task: Task, seaweedfs_place: Place, tmp_path: Path
) -> None:
    """A token of shard 3 is another one, after the manifest was assembled; sizes are as before."""
    raw = write_raw(tmp_path / "raw.parquet", sample_rows()[:40], row_group_size=8)
    ended: dict[str, list[tuple[int, str]]] = {}
    for name, commands in listed(task, seaweedfs_place.uri, raw, 4):
        if name == "validate-shard":
            assert all(code == 0 for codes in ended.values() for code, _ in codes), ended
            change_a_byte(seaweedfs_place, "root/train/shard_03_tokens.bin")
        ended[name] = [task(argv) for argv in commands]
    assert [code for code, _ in ended["validate-shard"]] == [0, 0, 0, 4], ended["validate-shard"][3]
    assert "shard_03" in ended["validate-shard"][3][1]
    ((code, text),) = ended["assemble-validation"]
    assert code == 4, text
    joined = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert joined["found"] == {"inventory": 1, "source": 1}, "the change, and nothing else"
    finding, text = joined["findings"]
    assert (text["split"], text["shard"]) == ("train", 3), "the text of the source is another"
    assert finding["file"] == "train/shard_03_tokens.bin"
    assert re.fullmatch("sha256 [0-9a-f]{64}, the manifest says [0-9a-f]{64}", finding["message"])
    assert read_object(seaweedfs_place.uri / "root/manifest.json") is None
    assert read_object(seaweedfs_place.uri / "root/manifest.pending.json") is not None


def change_a_byte(place: Place, name: str) -> None:
    client = amazon_client(place.address)
    key = (place.uri / name).key
    data = bytearray(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    data[len(data) // 2 & ~3] ^= 1
    client.put_object(Bucket=BUCKET, Key=key, Body=bytes(data))  # without the checksum that the writer recorded
