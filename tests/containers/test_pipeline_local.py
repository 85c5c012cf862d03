"""The compiled pipeline through kfp's own runner, each task in its image: what comes out, and how it fails."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY, Cli
from containers.conftest import checkout_sha, docker, inspected
from pipelines.compile import compile_pipelines
from pipelines.placement import Placement
from spanloom.families.harmony.sample import sample_rows
from spanloom.storage.publishing import publish_folder
from spanloom.storage.uri import parse_uri
from support import pipeline_inputs, sources
from support.nightly import drawn
from support.pipeline_inputs import Prepare
from support.raw_synth import tree, write_raw

SHARDS = [int(number) for number in os.environ.get("SPANLOOM_SHARDS", "1,4,7").split(",")]
RUN = drawn(nightly=4, otherwise=2)
"""Shards of the run that most tests look at: 16 or 10 containers. The committed pipeline is of four."""
PROJECT = "spanloom-test-pipeline"
pytestmark = pytest.mark.containers


def run_local(source: Path | None, work: Path, *parameters: str) -> "subprocess.CompletedProcess[str]":
    given = () if source is None else ("--source", source)
    return subprocess.run(
        [sys.executable, "-m", "pipelines.run_local", *given, "--work", work, *parameters],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.parent != root
    }


def compiled(name: str, folder: Path, shards: int) -> Path:
    (pipeline,) = (file for file in compile_pipelines(folder, Placement(), {}, shards) if file.stem == name)
    return pipeline


@pytest.fixture(scope="module")
def run(images: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A work folder: beside it the source, in it the dataset and what kfp keeps of each task."""
    folder = tmp_path_factory.mktemp("run")
    source = sources.write_source(folder / "source", [sources.rows(6, prefix=f"s{shard}") for shard in range(RUN)])
    pipeline = compiled("synth_kd", folder, RUN)
    ran = run_local(source, folder / "work", "--pipeline", str(pipeline), "valid_fraction=0.5", "deep=8")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder / "work"


def test_the_whole_graph_makes_what_a_build_makes(run: Path, tmp_path: Path, cli: Cli) -> None:
    root, source = run / "dataset", run.parent / "source"
    built = tmp_path / "built"
    done = cli(
        *("build", "--source", source, "--out", built, "--shards", RUN, "--valid-fraction", "0.5"),
        *("--deep", "8", "--quiet"),
        SPANLOOM_GIT_SHA=checkout_sha(),
    )
    assert done.returncode == 0, done.stderr
    assert files(root) == files(built)
    ours, theirs = (json.loads((folder / "manifest.json").read_bytes()) for folder in (built, root))
    assert theirs["content"] == ours["content"]
    assert theirs["environment"]["image"].startswith("ghcr.io/spanloom/spanloom-assemble-manifest:")
    assert theirs["environment"]["source"] == str(run / "source")


@pytest.mark.nightly  # 9, 21 and 33 containers
@pytest.mark.parametrize("shards", SHARDS)
def test_the_raw_sample_makes_what_a_build_makes(images: dict[str, Any], tmp_path: Path, cli: Cli, shards: int) -> None:
    """By the pipeline of that number of shards; the parameters are those of the host's commands."""
    pipeline = compiled("synth_raw_to_kd", tmp_path, shards)
    work, source, built = tmp_path / "work", tmp_path / "source", tmp_path / "built"
    raw = write_raw(work / "raw.parquet", sample_rows(), row_group_size=32)  # containers see one folder, `work`
    parameters = (f"raw_uri={raw}", f"source_uri={work}/source", f"dataset_root={work}/dataset")
    options = ("dataset_name=sample", "valid_fraction=0.1", "deep=8", "workers=1")
    ran = run_local(None, work, "--pipeline", str(pipeline), *parameters, *options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    converted = cli(
        *("convert-synth", "--raw", raw, "--out", source, "--assignment", "contiguous", "--shards", shards),
        *("--dataset", "sample"),
    )
    assert converted.returncode == 0, converted.stderr
    done = cli(
        *("build", "--source", source, "--out", built, "--shards", shards, "--valid-fraction", 0.1, "--deep", 8),
        *("--workers", 1),
        SPANLOOM_GIT_SHA=checkout_sha(),
    )
    assert done.returncode == 0, done.stderr
    assert tree(work / "source") == tree(source)
    assert files(work / "dataset") == files(built)
    assert sources.content(work / "dataset") == sources.content(built)


OTHERS = {file.stem: file for file in (REPOSITORY / "pipelines").glob("*.yaml") if not file.stem.startswith("synth_")}


@pytest.mark.nightly  # 2 to 28 containers each
@pytest.mark.parametrize("pipeline", sorted(OTHERS))
def test_another_committed_pipeline_makes_what_one_process_makes(tmp_path: Path, cli: Cli, pipeline: str) -> None:
    """`make pipelines-local` runs this test alone. A stage with a task for each shard has four."""
    file = OTHERS[pipeline]
    inspected(set(re.findall(r"image: \S+/spanloom-([a-z-]+):", file.read_text())))
    prepare: Prepare = getattr(pipeline_inputs, pipeline.removesuffix("_shards"))
    given = prepare(cli, tmp_path, 4 if "validate-shard" in file.read_text() else 1)
    ran = run_local(None, tmp_path, "--pipeline", str(file), *given.parameters)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert set(map(str, given.roots)) <= set(ran.stdout.splitlines())
    for command in given.whole:
        pipeline_inputs.run(cli, *command, SPANLOOM_GIT_SHA=checkout_sha())
    for root, whole in given.roots.items():
        assert [name for name in files(root) if name.startswith("train/")]
        assert files(root) == files(whole)
        assert sources.content(root) == sources.content(whole)


def test_no_artifact_is_a_folder(run: Path) -> None:
    """Kubeflow's launcher copies a folder one file after another, and checks none of them."""
    outputs = [path for task in run.glob("synth-kd-*/*") for path in task.iterdir()]
    assert len(outputs) > 3 * RUN + 4
    assert [path for path in outputs if not path.is_file()] == []


@pytest.fixture
def store(images: dict[str, Any]) -> Iterator[str]:
    """An object store in a Docker network of its own; its address on this machine."""

    def compose(*arguments: str, check: bool = True) -> str:
        file = REPOSITORY / "docker/compose.yaml"
        return docker("compose", "--project-name", PROJECT, "--file", file, *arguments, check=check).stdout.strip()

    down = ("down", "--volumes", "--timeout", "1")
    compose(*down, check=False)
    compose("up", "--detach", "--no-build", "--wait", "object-store")
    yield f"http://{compose('port', 'object-store', '9023')}"
    compose(*down, check=False)


@pytest.mark.nightly  # `make smoke` runs all steps over an object store in their containers
def test_the_whole_graph_over_an_object_store_makes_what_a_build_makes(
    store: str, source: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", store)
    publish_folder(source, parse_uri("gs://spanloom/source"), last="manifest.json")
    places = ("source_uri=gs://spanloom/source", "dataset_root=gs://spanloom/dataset")
    network = ("--network", f"{PROJECT}_default", "--env", "STORAGE_EMULATOR_HOST=http://object-store:9023")
    network += ("--env", "SPANLOOM_SKIP_STORE_PROBE=1")  # the emulator ignores conditions
    ran = run_local(None, tmp_path / "work", *network, *places, "valid_fraction=0.5", "deep=8")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert cli("fetch", "gs://spanloom/dataset", tmp_path / "fetched").returncode == 0
    options = ("--valid-fraction", "0.5", "--deep", "8", "--quiet")
    built = cli("build", "--source", source, "--out", tmp_path / "built", *options, SPANLOOM_GIT_SHA=checkout_sha())
    assert built.returncode == 0, built.stderr
    assert files(tmp_path / "fetched") == files(tmp_path / "built")
    ours, theirs = (json.loads((tmp_path / name / "manifest.json").read_bytes()) for name in ("built", "fetched"))
    assert theirs["content"] == ours["content"]
    assert theirs["environment"]["source"] == "gs://spanloom/source"


def test_a_capped_run_into_the_canonical_root_fails_before_anything_stands_there(
    images: dict[str, Any], source: Path, tmp_path: Path
) -> None:
    work = tmp_path  # the one folder that containers see
    root = work / "synth_kd_v1"
    ran = run_local(None, work, f"source_uri={source.rename(work / 'given')}", f"dataset_root={root}", "max_rows=4")
    assert ran.returncode != 0
    assert "error: a capped run must not write the canonical dataset" in ran.stdout + ran.stderr
    assert not root.exists()


def test_every_task_answers_with_its_artifacts_and_numbers(run: Path) -> None:
    answers: dict[str, dict[str, dict[str, Any]]] = {}
    for file in run.glob("synth-kd-*/*/executor_output.json"):
        artifacts = json.loads(file.read_bytes())["artifacts"]
        answers[file.parent.name] = {name: entry["artifacts"][0]["metadata"] for name, entry in artifacts.items()}
    assert len(answers) == 3 * RUN + 4
    renders = [metadata["metrics"] for task, metadata in answers.items() if task.startswith("render-shard")]
    assert [metrics["rows"] for metrics in renders] == [6] * RUN
    total = answers["assemble-manifest"]["metrics"]
    assert total["train_sequences"] + total["valid_sequences"] == 6 * RUN
    assert total["train_tokens"] + total["valid_tokens"] == sum(metrics["tokens"] for metrics in renders)
    assert answers["assemble-validation"]["metrics"]["findings"] == 0
    page = next(run.glob("synth-kd-*/assemble-validation/html"))
    assert page.read_bytes().startswith(b"<!doctype html>")


def test_a_bad_row_fails_the_run_and_the_steps_own_message_is_there(images: dict[str, Any], tmp_path: Path) -> None:
    bad = sources.row("broken", messages_json="{not json")
    source = sources.write_source(
        tmp_path / "source", [sources.rows(2, prefix=f"s{shard}") + ([bad] if shard == 2 else []) for shard in range(4)]
    )
    ran = run_local(source, tmp_path / "work")
    output = ran.stdout + ran.stderr
    assert ran.returncode != 0
    assert "error: " in output
    assert "shard 02" in output
    assert "broken" in output
    assert "--max-rejects" in output
    # The second: `kfp.local` takes a container that is gone when it asks for a success, and misses its outputs later.
    assert "Inner task failed: " in output or "Tried to get output" in output
    assert not (tmp_path / "work/dataset/manifest.json").exists()
