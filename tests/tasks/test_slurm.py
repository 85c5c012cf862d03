"""A real Slurm: what is tried again and what is not, and pipelines whose datasets are those of one machine."""

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Cli
from pipelines.of_list import MOST_SHARDS as MOST_NAMED_TASKS
from spanloom.families.harmony.sample import sample_rows
from spanloom.storage.publishing import publish_file
from spanloom.storage.staging import stage_folder
from spanloom.storage.uri import parse_uri
from spanloom.tasks.listed import MOST_SHARDS
from spanloom.tasks.slurm import SUBMIT, slurm_files
from spanloom.tasks.stage import Stage
from support import sources
from support.pipeline_inputs import BY_SHARD, Prepare, chess_games, run
from support.raw_synth import raw_row, tree, write_raw
from support.slurm import Job, Slurm, slurm_cluster

PATIENCE = 600.0
SHARDS = [int(number) for number in os.environ.get("SPANLOOM_SLURM_SHARDS", "2").split(",")]
"""Numbers of shards that the raw sample is built with."""


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    """A cluster for each test, which begins without tasks."""
    with slurm_cluster() as cluster:
        yield cluster


def states(jobs: list[Job]) -> dict[tuple[str, int | None], tuple[str, int]]:
    """State and number of restarts of each task."""
    return {(job.name, job.index): (job.state, job.restarts) for job in jobs}


# --- What is tried again ---------------------------------------------------------------------------------------------


def stage(name: str, script: str, count: int = 1, after: tuple[str, ...] = ()) -> Stage:
    """A stage that runs a script of bash; in it `$0` is the number of the task."""
    argv = ("bash", "-c", script, "{index}" if count > 1 else "0")
    return Stage(
        name=name, count=count, image="", argv=argv, cpu="1", memory="1Gi", scratch="1Gi", hours=1, after=after
    )


def submit(slurm: Slurm, folder: Path, stages: list[Stage], **environment: str) -> list[Job]:
    """Submits the stages and waits for their end."""
    folder.mkdir()
    for name, text in slurm_files("test", stages, lambda stage: stage.argv).items():
        (folder / name).write_text(text)
    assert f"logs: {folder / 'logs'}" in slurm.run("bash", folder / SUBMIT, **environment)
    return slurm.wait(PATIENCE)


def test_a_store_given_up_and_a_signal_are_tried_again_and_a_fault_of_data_is_not(slurm: Slurm, tmp_path: Path) -> None:
    """Of three tasks each in its own way fails at its first try; the third would succeed at a second one."""
    fail = "case $0 in 0) exit 75;; 1) kill -KILL $$;; 2) exit 1;; esac"
    once = f"test -e {tmp_path}/$0 || {{ touch {tmp_path}/$0; {fail}; }}"
    jobs = submit(slurm, tmp_path / "slurm", [stage("first", once, 3), stage("second", "true", after=("first",))])
    assert states(jobs) == {
        ("first", 0): ("COMPLETED", 1),
        ("first", 1): ("COMPLETED", 1),
        ("first", 2): ("FAILED", 0),
        ("second", None): ("CANCELLED", 0),
    }


def test_a_stage_begins_when_all_tasks_before_it_have_ended_also_those_tried_again(
    slurm: Slurm, tmp_path: Path
) -> None:
    first = f"test -e {tmp_path}/$0.once || {{ touch {tmp_path}/$0.once; exit 75; }}; touch {tmp_path}/$0.done"
    second = f"test $(ls {tmp_path}/*.done | wc -l) = 2"
    jobs = submit(slurm, tmp_path / "slurm", [stage("first", first, 2), stage("second", second, after=("first",))])
    assert states(jobs) == {
        ("first", 0): ("COMPLETED", 1),
        ("first", 1): ("COMPLETED", 1),
        ("second", None): ("COMPLETED", 0),
    }


def test_the_last_task_of_an_array_is_put_back_alone(slurm: Slurm, tmp_path: Path) -> None:
    """Its job id is that of the array: by it all tasks would be put back."""
    fail = f"[ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; exit 75; }}"
    script = f"[ $0 != 1 ] || {fail}; sleep 1; echo >> {tmp_path}/$0"
    jobs = submit(slurm, tmp_path / "slurm", [stage("only", script, 2)])
    assert states(jobs) == {("only", 0): ("COMPLETED", 0), ("only", 1): ("COMPLETED", 1)}
    assert [(tmp_path / name).read_text() for name in ("0", "1")] == ["\n", "\n"]


@pytest.mark.nightly  # twenty seconds of waiting
def test_what_is_tried_again_ends_after_three_times(slurm: Slurm, tmp_path: Path) -> None:
    jobs = submit(slurm, tmp_path / "slurm", [stage("only", f"echo >> {tmp_path}/tries; exit 75")])
    assert states(jobs) == {("only", None): ("FAILED", 3)}
    assert (tmp_path / "tries").read_text() == "\n" * 4
    assert jobs[0].exit_code == 75


@pytest.mark.nightly  # the cluster's start alone takes seconds
def test_an_array_of_1024_tasks_is_taken(slurm: Slurm, tmp_path: Path) -> None:
    """As many shards as `spanloom tasks` allows; MaxArraySize is what the docs ask for. The job is held, not run."""
    (tmp_path / "slurm").mkdir()
    most = stage("only", "true", MOST_SHARDS)
    for name, text in slurm_files("test", [most], lambda stage: stage.argv, ["--hold"]).items():
        (tmp_path / "slurm" / name).write_text(text)
    slurm.run("bash", tmp_path / "slurm" / SUBMIT)
    assert slurm.run("squeue", "--noheader", "--array", "--format=%t").split() == ["PD"] * MOST_SHARDS


# --- A pipeline ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["folders", "seaweedfs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where source, dataset and what tasks hand on are. Keys of a store are in the environment that is submitted."""
    if request.param == "folders":
        return str(tmp_path / "place")
    return str(request.getfixturevalue("seaweedfs_place").uri)


def at_hand(place: str, name: str, folder: Path) -> Path:
    """A folder of the place on this machine."""
    if "://" not in place:
        return Path(place) / name
    stage_folder(parse_uri(f"{place}/{name}"), folder / name)
    return folder / name


def venv_that_kills_once(folder: Path, program: Path, victims: dict[str, int]) -> Path:
    """An environment whose `spanloom` dies of SIGKILL at the first try of one task of each stage."""
    marks = folder / "killed"
    marks.mkdir(parents=True)
    cases = "\n".join(
        f'  {name}) [ "${{SLURM_ARRAY_TASK_ID:-0}}" != {index} ] || [ -e {marks}/{name} ] || '
        f"{{ touch {marks}/{name}; kill -KILL $$; }};;"
        for name, index in victims.items()
    )
    script = folder / "bin/spanloom"
    script.parent.mkdir()
    script.write_text(f'#!/bin/bash\ncase "${{SLURM_JOB_NAME#spanloom-}}" in\n{cases}\nesac\nexec {program} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return folder


def program() -> Path:
    return Path(sys.executable).parent / "spanloom"


EACH = ("convert-shard", "render-shard", "write-indexed", "validate-shard")
ONE = ("assemble-source", "verify-tokenizer", "assemble-split", "assemble-manifest", "assemble-validation")


@pytest.mark.nightly  # a minute or two each
@pytest.mark.parametrize("shards", SHARDS)
def test_the_raw_sample_through_slurm_is_the_dataset_of_one_machine_though_a_task_of_each_stage_is_killed(
    slurm: Slurm, tmp_path: Path, place: str, cli: Cli, asset: Path, shards: int
) -> None:
    raw = write_raw(tmp_path / "raw.parquet", sample_rows(), row_group_size=32)
    options = ("--valid-fraction", 0.1, "--deep", 8, "--workers", 1)
    done = cli(
        "convert-synth",
        "--raw",
        raw,
        "--out",
        tmp_path / "host/source",
        "--assignment",
        "contiguous",
        "--shards",
        shards,
        "--dataset",
        "sample",
    )
    assert done.returncode == 0, done.stderr
    done = cli(
        "build", "--source", tmp_path / "host/source", "--out", tmp_path / "host/root", "--shards", shards, *options
    )
    assert done.returncode == 0, done.stderr

    last = shards - 1
    venv = venv_that_kills_once(tmp_path / "venv", program(), {**dict.fromkeys(EACH, last), **dict.fromkeys(ONE, 0)})
    raw_place = str(raw)
    if "://" in place:
        raw_place = f"{place}/raw/{raw.name}"
        publish_file(raw, parse_uri(raw_place))
    parameters = (
        *(f"raw_uri={raw_place}", f"source_uri={place}/source", f"dataset_root={place}/root", "dataset_name=sample"),
        *("valid_fraction=0.1", "deep=8", "workers=1", "render_cpu=2"),
    )
    done = cli(
        *("tasks", "synth_raw_to_kd", *parameters, "--shards", shards, "--work", f"{place}/tasks"),
        *("--for", "slurm", "--out", tmp_path / "slurm", "--venv", venv),
    )
    assert done.returncode == 0, done.stderr
    slurm.run("bash", tmp_path / "slurm" / SUBMIT, O200K_HARMONY_VOCAB_PATH=str(asset), SPANLOOM_GIT_SHA="0" * 40)
    jobs = slurm.wait(PATIENCE)

    logs = {log.name: log.read_text()[-2000:] for log in (tmp_path / "slurm/logs").iterdir()}
    assert states(jobs) == {
        **{(name, index): ("COMPLETED", int(index == last)) for name in EACH for index in range(shards)},
        **{(name, None): ("COMPLETED", 1) for name in ONE},
    }, logs
    source, root = (at_hand(place, name, tmp_path / "fetched") for name in ("source", "root"))
    assert tree(source) == tree(tmp_path / "host/source")
    assert sources.data_files(root) == sources.data_files(tmp_path / "host/root")
    assert sources.content(root) == sources.content(tmp_path / "host/root")


@pytest.mark.nightly  # a minute or two each
@pytest.mark.parametrize("prepare", [*BY_SHARD, chess_games], ids=lambda one: one.__name__)
def test_a_family_through_slurm_makes_the_datasets_of_one_process_though_a_task_of_each_stage_is_killed(
    slurm: Slurm, tmp_path: Path, cli: Cli, asset: Path, prepare: Prepare
) -> None:
    shards = 3
    given = prepare(cli, tmp_path, shards)
    words = ("tasks", prepare.__name__, *given.parameters, "--shards", shards, "--work", tmp_path / "work")
    counts = {stage["stage"]: stage["count"] for stage in json.loads(run(cli, *words))["stages"]}
    assert set(counts.values()) == {1, shards}
    venv = venv_that_kills_once(tmp_path / "venv", program(), {stage: count - 1 for stage, count in counts.items()})
    run(cli, *words, "--for", "slurm", "--out", tmp_path / "slurm", "--venv", venv)
    slurm.run("bash", tmp_path / "slurm" / SUBMIT, O200K_HARMONY_VOCAB_PATH=str(asset), SPANLOOM_GIT_SHA="0" * 40)
    jobs = slurm.wait(PATIENCE)
    logs = {log.name: log.read_text()[-2000:] for log in (tmp_path / "slurm/logs").iterdir()}
    assert states(jobs) == {
        (stage, index if count > 1 else None): ("COMPLETED", int(index == count - 1))
        for stage, count in counts.items()
        for index in range(count)
    }, logs
    for command in given.whole:
        run(cli, *command)
    for root, whole in given.roots.items():
        assert sources.data_files(root) == sources.data_files(whole)
        assert sources.content(root) == sources.content(whole)


@pytest.mark.nightly  # minutes
def test_more_shards_than_kubeflow_has_tasks_for(slurm: Slurm, tmp_path: Path, cli: Cli, asset: Path) -> None:
    """One shard more than the named tasks of a compiled pipeline, of three rows each."""
    shards = MOST_NAMED_TASKS + 1
    source = sources.write_source(tmp_path / "source", [sources.rows(3, prefix=f"s{shard}") for shard in range(shards)])
    options = ("--valid-fraction", 0.5, "--deep", 8, "--workers", 1)
    done = cli("build", "--source", source, "--out", tmp_path / "host", "--shards", shards, *options)
    assert done.returncode == 0, done.stderr
    parameters = (f"source_uri={source}", f"dataset_root={tmp_path}/root", "valid_fraction=0.5", "deep=8", "workers=1")
    done = cli(
        *("tasks", "synth_kd", *parameters, "render_cpu=2", "--shards", shards, "--work", tmp_path / "work"),
        *("--for", "slurm", "--out", tmp_path / "slurm", "--venv", Path(sys.prefix)),
    )
    assert done.returncode == 0, done.stderr
    slurm.run("bash", tmp_path / "slurm" / SUBMIT, O200K_HARMONY_VOCAB_PATH=str(asset), SPANLOOM_GIT_SHA="0" * 40)
    jobs = slurm.wait(3 * PATIENCE)
    logs = {log.name: log.read_text()[-2000:] for log in (tmp_path / "slurm/logs").iterdir()}
    assert {job.state for job in jobs} == {"COMPLETED"}, logs
    assert len([job for job in jobs if job.name == "write-indexed"]) == shards
    assert sources.data_files(tmp_path / "root") == sources.data_files(tmp_path / "host")
    assert sources.content(tmp_path / "root") == sources.content(tmp_path / "host")


@pytest.mark.nightly  # a minute or two each
def test_a_fault_of_data_ends_its_task_with_a_message_others_finish_and_nothing_is_promoted(
    slurm: Slurm, tmp_path: Path, cli: Cli, asset: Path
) -> None:
    """A duplicate id is seen when all shards are rendered; they are written meanwhile."""
    raw = write_raw(tmp_path / "raw.parquet", [raw_row(0), raw_row(1), raw_row(2), raw_row(0)], row_group_size=1)
    done = cli("convert-synth", "--raw", raw, "--out", tmp_path / "source", "--shards", 2)
    assert done.returncode == 0, done.stderr
    done = cli(
        *("tasks", "synth_kd", f"source_uri={tmp_path}/source", f"dataset_root={tmp_path}/root", "workers=1"),
        *("render_cpu=2", "--shards", 2, "--work", tmp_path / "work", "--for", "slurm", "--out", tmp_path / "slurm"),
    )
    assert done.returncode == 0, done.stderr
    slurm.run("bash", tmp_path / "slurm" / SUBMIT, O200K_HARMONY_VOCAB_PATH=str(asset), SPANLOOM_GIT_SHA="0" * 40)
    assert states(slurm.wait(PATIENCE)) == {
        ("verify-tokenizer", None): ("COMPLETED", 0),
        ("render-shard", 0): ("COMPLETED", 0),
        ("render-shard", 1): ("COMPLETED", 0),
        ("assemble-split", None): ("FAILED", 0),
        ("write-indexed", 0): ("COMPLETED", 0),
        ("write-indexed", 1): ("COMPLETED", 0),
        ("assemble-manifest", None): ("CANCELLED", 0),
        ("validate-shard", None): ("CANCELLED", 0),
        ("assemble-validation", None): ("CANCELLED", 0),
    }
    (log,) = (tmp_path / "slurm/logs").glob("assemble-split-*.log")
    assert "duplicate synth_id 'id-0'" in log.read_text()
    assert not list((tmp_path / "root").glob("manifest*"))


@pytest.mark.nightly  # a minute
def test_a_finding_in_one_shard_fails_its_task_with_a_message_others_finish_and_nothing_is_promoted(
    slurm: Slurm, tmp_path: Path, cli: Cli, asset: Path
) -> None:
    """A byte of shard 3 changes before it is validated."""
    shards, root = 4, tmp_path / "root"
    rows = [sources.rows(8, prefix=f"s{shard}") for shard in range(shards)]
    source = sources.write_source(tmp_path / "source", rows)
    file = root / "train/shard_03_tokens.bin"
    change = f"import pathlib; p = pathlib.Path('{file}'); b = bytearray(p.read_bytes()); b[8] ^= 1; p.write_bytes(b)"
    script = tmp_path / "venv/bin/spanloom"
    script.parent.mkdir(parents=True)
    script.write_text(
        f'#!/bin/bash\nif [ "$2" = validate-shard ] && [ "$SLURM_ARRAY_TASK_ID" = 3 ]; then\n'
        f'{sys.executable} -c "{change}"\nfi\nexec {program()} "$@"\n'
    )
    script.chmod(0o755)
    done = cli(
        *("tasks", "synth_kd", f"source_uri={source}", f"dataset_root={root}", "workers=1", "render_cpu=2", "deep=0"),
        *("--shards", shards, "--work", tmp_path / "work", "--for", "slurm", "--out", tmp_path / "slurm"),
        *("--venv", tmp_path / "venv"),
    )
    assert done.returncode == 0, done.stderr
    slurm.run("bash", tmp_path / "slurm" / SUBMIT, O200K_HARMONY_VOCAB_PATH=str(asset), SPANLOOM_GIT_SHA="0" * 40)
    ended = slurm.wait(PATIENCE)
    ends = {job.index: (job.state, job.restarts, job.exit_code) for job in ended if job.name == "validate-shard"}
    assert ends == {**dict.fromkeys(range(3), ("COMPLETED", 0, 0)), 3: ("FAILED", 0, 4)}
    assert states(ended)["assemble-validation", None] == ("CANCELLED", 0)
    (log,) = (tmp_path / "slurm/logs").glob("validate-shard-*_3.log")
    assert "shard_03_tokens.bin" in log.read_text()
    assert not (root / "manifest.json").exists()
    assert (root / "manifest.pending.json").exists()
