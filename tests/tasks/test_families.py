"""Each family's task list, run task after task on this machine: the commands fit together, and a dataset is there."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Cli

Prepare = Callable[[Cli, Path], tuple[tuple[str, ...], Path]]
"""Makes the inputs in a folder; returns the parameters and the manifest that must be there at the end."""


def run(cli: Cli, *words: object) -> str:
    done = cli(*words, SPANLOOM_GIT_SHA="0" * 40)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stderr}"
    return done.stdout


def model_chat(cli: Cli, folder: Path) -> tuple[tuple[str, ...], Path]:
    run(cli, "model", "sample", "--out", folder / "in")
    run(cli, "convert", folder / "in/chat.jsonl", "--out", folder / "source", "--yes", "--quiet")
    given = (f"source_uri={folder}/source", f"model_uri={folder}/in/model", "valid_fraction=0.3", "workers=1")
    return (*given, f"dataset_root={folder}/root"), folder / "root/manifest.json"


def packed_chat(cli: Cli, folder: Path) -> tuple[tuple[str, ...], Path]:
    run(cli, "chat", "sample", "--out", folder / "chats.jsonl")
    given = (f"conversations_uri={folder}/chats.jsonl", f"transcripts_uri={folder}/transcripts.parquet", "workers=1")
    drop = ("drop=reasoning_content,tool_calls,tool", "think=drop", "on_error=skip")
    return (*given, *drop, f"dataset_root={folder}/root"), folder / "root/manifest.json"


def chess_games(cli: Cli, folder: Path) -> tuple[tuple[str, ...], Path]:
    run(cli, "chess", "sample", "--out", folder / "in")
    given = (f"games_uri={folder}/in/games", f"thinking_uri={folder}/in/thinking", f"dataset_root={folder}/root")
    return given, folder / "root/manifest.json"


def traces_dataset(cli: Cli, folder: Path) -> tuple[tuple[str, ...], Path]:
    tokenizer = folder / "tokenizer.json"
    run(cli, "traces", "sample", "--out", folder / "traces.jsonl", "--tokenizer", tokenizer)
    given = (f"traces_uri={folder}/traces.jsonl", "source_name=s", "dataset_name=d", "dataset_version=1")
    tokens = (f"tokenizer_uri={tokenizer}", "valid_fraction=0.2", f"dataset_root={folder}/root")
    return (*given, *tokens), folder / "root/manifest.json"


@pytest.mark.nightly  # ten seconds each
@pytest.mark.parametrize(
    "prepare", [model_chat, packed_chat, chess_games, traces_dataset], ids=lambda one: one.__name__
)
def test_the_tasks_of_a_list_make_a_dataset(cli: Cli, tmp_path: Path, prepare: Prepare) -> None:
    parameters, manifest = prepare(cli, tmp_path)
    listed = json.loads(run(cli, "tasks", prepare.__name__, *parameters, "--work", tmp_path / "work"))
    for stage in listed["stages"]:
        for index in range(stage["count"]):
            run(cli, *(word.replace("{index}", str(index)) for word in stage["argv"][1:]))
    assert manifest.is_file()
    # What is below the work folder are Kubeflow's artifacts: its launcher copies a folder file by file, unchecked.
    stages = {stage["stage"]: stage["count"] for stage in listed["stages"]}
    for name, count in stages.items():
        for folder in [tmp_path / "work" / name] if count == 1 else (tmp_path / "work" / name).iterdir():
            assert all(output.is_file() for output in folder.glob("*")), folder
