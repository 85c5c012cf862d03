"""The compiled pipeline through kfp's own runner, each task in its image: what comes out, and how it fails."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import REPOSITORY, Cli
from containers.conftest import checkout_sha
from support import sources

pytestmark = pytest.mark.containers


def run_local(source: Path, work: Path, *parameters: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pipelines.run_local", "--source", source, "--work", work, *parameters],
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


def test_the_whole_graph_makes_what_a_build_makes(
    images: dict[str, Any], source: Path, tmp_path: Path, cli: Cli
) -> None:
    ran = run_local(source, tmp_path / "work", "valid_fraction=0.5", "deep=8")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    root = tmp_path / "work/dataset"
    built = tmp_path / "built"
    done = cli(
        *("build", "--source", source, "--out", built, "--valid-fraction", "0.5", "--deep", "8", "--quiet"),
        SPANLOOM_GIT_SHA=checkout_sha(),
    )
    assert done.returncode == 0, done.stderr
    assert files(root) == files(built)
    ours, theirs = (json.loads((folder / "manifest.json").read_bytes()) for folder in (built, root))
    assert theirs["content"] == ours["content"]
    assert theirs["environment"]["image"].startswith("ghcr.io/spanloom/spanloom-assemble-manifest:")


def test_every_task_answers_with_its_artifacts_and_numbers(
    images: dict[str, Any], source: Path, tmp_path: Path
) -> None:
    assert run_local(source, tmp_path / "work", "valid_fraction=0.5").returncode == 0
    told: dict[str, dict[str, dict[str, Any]]] = {}
    for file in (tmp_path / "work").glob("synth-kd-*/*/executor_output.json"):
        said = json.loads(file.read_bytes())["artifacts"]
        told[file.parent.name] = {name: entry["artifacts"][0]["metadata"] for name, entry in said.items()}
    assert len(told) == 12
    renders = [metadata["metrics"] for task, metadata in told.items() if task.startswith("render-shard")]
    assert [metrics["rows"] for metrics in renders] == [6] * 4
    total = told["assemble-manifest"]["metrics"]
    assert total["train_sequences"] + total["valid_sequences"] == 24
    assert total["train_tokens"] + total["valid_tokens"] == sum(metrics["tokens"] for metrics in renders)
    assert told["validate-alignment"]["metrics"]["findings"] == 0
    page = next((tmp_path / "work").glob("synth-kd-*/validate-alignment/html"))
    assert page.read_bytes().startswith(b"<!doctype html>")


def test_a_bad_row_fails_the_run_and_the_steps_own_message_is_there(images: dict[str, Any], tmp_path: Path) -> None:
    bad = sources.row("broken", messages_json="{not json")
    source = sources.write_source(
        tmp_path / "source", [sources.rows(2, prefix=f"s{shard}") + ([bad] if shard == 2 else []) for shard in range(4)]
    )
    ran = run_local(source, tmp_path / "work")
    said = ran.stdout + ran.stderr
    assert ran.returncode != 0
    assert "error: " in said
    assert "shard 02" in said
    assert "broken" in said
    assert "--max-rejects" in said
    assert "Inner task failed: " in said
    assert not (tmp_path / "work/dataset/manifest.json").exists()
