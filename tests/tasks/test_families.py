"""Each family's task list, run task after task on this machine: the commands fit together, and a dataset is there.

With a task for each shard, the dataset is that of one process: the same bytes and the same `content`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from conftest import Cli
from spanloom.storage.staging import stage_folder
from support import sources
from support.object_stores import Place

SHARDS = 3
TIME = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Given:
    """Parameters of a pipeline. `whole`: commands that make the same dataset of three shards in one process; `roots`:
    root of the pipeline → root of that process."""

    parameters: tuple[str, ...]
    whole: tuple[tuple[object, ...], ...]
    roots: Mapping[Path, Path]


Prepare = Callable[[Cli, Path], Given]
"""Function: the command, a folder → the pipeline's parameters, after its inputs are made in the folder."""


def run(cli: Cli, *words: object, **environment: str) -> str:
    done = cli(*words, SPANLOOM_GIT_SHA="0" * 40, **environment)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stderr}"
    return done.stdout


def model_chat(cli: Cli, folder: Path) -> Given:
    run(cli, "model", "sample", "--out", folder / "in")
    source = ("--out", folder / "source", "--rows-per-shard", 15, "--yes", "--quiet")
    run(cli, "convert", folder / "in/chat.jsonl", *source)
    given = (f"source_uri={folder}/source", f"model_uri={folder}/in/model", "valid_fraction=0.3", "workers=1")
    whole = ("build", "--source", folder / "source", "--model", folder / "in/model", "--valid-fraction", 0.3)
    return Given(
        (*given, f"dataset_root={folder}/root"),
        ((*whole, "--out", folder / "whole", "--quiet"),),
        {folder / "root": folder / "whole"},
    )


def harmony_chat(cli: Cli, folder: Path) -> Given:
    run(cli, "model", "sample", "--out", folder / "in")
    source = ("--out", folder / "source", "--rows-per-shard", 15, "--calls-in-turn", "--max-rejects", "50%")
    run(cli, "convert", folder / "in/chat.jsonl", *source, "--format", "harmony", "--yes", "--quiet")
    given = (f"source_uri={folder}/source", "valid_fraction=0.3", "max_rejects=50%", "train=analysis,final")
    cut = ("--train", "analysis,final", "--mask-generation-prompt")
    whole = ("build", "--source", folder / "source", "--valid-fraction", 0.3, "--max-rejects", "50%")
    return Given(
        (*given, "mask_generation_prompt=1", "workers=1", f"dataset_root={folder}/root"),
        ((*whole, *cut, "--out", folder / "whole", "--quiet"),),
        {folder / "root": folder / "whole"},
    )


def packed_chat(cli: Cli, folder: Path) -> Given:
    run(cli, "chat", "sample", "--out", folder / "chats.jsonl")
    transcripts = folder / "transcripts.parquet"
    given = (f"conversations_uri={folder}/chats.jsonl", f"transcripts_uri={transcripts}", "workers=1")
    drop = ("drop=reasoning_content,tool_calls,tool", "think=drop", "on_error=skip", "block_size=256")
    whole = ("chat", "pack", "--input", transcripts, "--post-training", "--on-error", "skip", "--shards", SHARDS)
    return Given(
        (*given, *drop, f"dataset_root={folder}/root"),
        ((*whole, "--block-size", 256, "--out", folder / "whole", "--quiet"),),
        {folder / "root": folder / "whole"},
    )


def chess_games(cli: Cli, folder: Path) -> Given:
    run(cli, "chess", "sample", "--out", folder / "in")
    given = (f"games_uri={folder}/in/games", f"thinking_uri={folder}/in/thinking", f"dataset_root={folder}/root")
    return Given(given, (), {folder / "root": folder / "whole"})


def traces_dataset(cli: Cli, folder: Path) -> Given:
    tokenizer, traces = folder / "tokenizer.json", folder / "traces.jsonl"
    run(cli, "traces", "sample", "--out", traces, "--tokenizer", tokenizer)
    given = (f"traces_uri={traces}", "source_name=s", "dataset_name=d", "dataset_version=1", f"created_at={TIME}")
    tokens = (f"tokenizer_uri={tokenizer}", "valid_fraction=0.2", f"dataset_root={folder}/root")
    store = ("traces", "--root", folder / "store")
    made = ("--tokenizer", tokenizer, "--valid-fraction", 0.2, "--shards", SHARDS)
    return Given(
        (*given, *tokens),
        (
            (*store, "ingest", traces, "--source-name", "s", "--created-at", TIME, "--quiet"),
            (*store, "build", "--name", "d", "--version", 1, "--reproducible"),
            (*store, "tokenize", "d-1", *made, "--out", folder / "whole", "--quiet"),
        ),
        {folder / "root": folder / "whole"},
    )


def toolcalls_dataset(cli: Cli, folder: Path) -> Given:
    run(cli, "toolcalls", "demo", "--out", folder / "in")
    inputs = {"b4": "b4.jsonl", "agentdojo": "agentdojo.jsonl", "ultrachat": "ultrachat.jsonl", "xstest": "xstest.csv"}
    given = [f"{name}_uri={folder}/in/{file}" for name, file in inputs.items()]
    given += [f"{name}_completions_uri={folder}/in/completions.jsonl" for name in ("b4", "xstest")]
    with_tools = ("system=You have tools.", f"tau2_uri={folder}/in/tau2", f"samples_uri={folder}/samples")
    template, tokenizer = folder / "in/chat_template.jinja", folder / "in/tokenizer.json"
    tokens = (f"template_uri={template}", f"tokenizer_uri={tokenizer}", f"merged_uri={folder}/merged.jsonl")
    roots = [f"{split}_root={folder}/{split}" for split in ("harmful", "retain")]
    whole = ("toolcalls", "tokenize", "--data", folder / "merged.jsonl", "--template", template)
    made = ("--tokenizer", tokenizer, "--valid-fraction", 0.2, "--shards", SHARDS)
    return Given(
        (*given, *with_tools, *tokens, *roots, "valid_fraction=0.2", "min_ratio=0", "min_adversarial_safe=0"),
        ((*whole, *made, "--out", folder / "whole", "--quiet"),),
        {folder / split: folder / "whole" / split for split in ("harmful", "retain")},
    )


def run_all(cli: Cli, work: object, pipeline: str, *words: object, **environment: str) -> dict[str, int]:
    """Runs the tasks of a list one after the other. Returns how many each stage has."""
    stages = json.loads(run(cli, "tasks", pipeline, *words, "--work", work))["stages"]
    for stage in stages:
        for index in range(stage["count"]):
            run(cli, *(word.replace("{index}", str(index)) for word in stage["argv"][1:]), **environment)
    return {stage["stage"]: stage["count"] for stage in stages}


@pytest.mark.nightly  # ten seconds each
@pytest.mark.parametrize(
    "prepare", [model_chat, packed_chat, chess_games, traces_dataset, toolcalls_dataset], ids=lambda one: one.__name__
)
def test_the_tasks_of_a_list_make_a_dataset(cli: Cli, tmp_path: Path, prepare: Prepare) -> None:
    given = prepare(cli, tmp_path)
    stages = run_all(cli, tmp_path / "work", prepare.__name__, *given.parameters)
    assert all((root / "manifest.json").is_file() for root in given.roots)
    # What is below the work folder are Kubeflow's artifacts: its launcher copies a folder file by file, unchecked.
    for name, count in stages.items():
        for folder in [tmp_path / "work" / name] if count == 1 else (tmp_path / "work" / name).iterdir():
            assert all(output.is_file() for output in folder.glob("*")), folder


@pytest.mark.nightly  # half a minute each
@pytest.mark.parametrize(
    "prepare",
    [model_chat, harmony_chat, packed_chat, traces_dataset, toolcalls_dataset],
    ids=lambda one: one.__name__,
)
def test_a_task_for_each_shard_makes_the_dataset_of_one_process(cli: Cli, tmp_path: Path, prepare: Prepare) -> None:
    given = prepare(cli, tmp_path)
    stages = run_all(cli, tmp_path / "work", prepare.__name__, *given.parameters, "--shards", SHARDS)
    assert {count for name, count in stages.items() if name.startswith("validate-shard")} == {SHARDS}
    for words in given.whole:
        run(cli, *words)
    for root, whole in given.roots.items():
        assert sources.data_files(root) == sources.data_files(whole)
        assert sources.content(root) == sources.content(whole)


@pytest.mark.slow
@pytest.mark.nightly  # a minute each
@pytest.mark.parametrize(
    "prepare", [model_chat, packed_chat, traces_dataset, toolcalls_dataset], ids=lambda one: one.__name__
)
def test_so_does_it_in_an_object_store(cli: Cli, tmp_path: Path, seaweedfs_place: Place, prepare: Prepare) -> None:
    given, place = prepare(cli, tmp_path), seaweedfs_place.uri
    there = [text.replace(f"root={tmp_path}", f"root={place}") for text in given.parameters]
    run_all(cli, f"{place}/work", prepare.__name__, *there, "--shards", SHARDS, **seaweedfs_place.environment)
    for words in given.whole:
        run(cli, *words)
    for root, whole in given.roots.items():
        stage_folder(place / root.name, tmp_path / "fetched" / root.name)
        assert sources.data_files(tmp_path / "fetched" / root.name) == sources.data_files(whole)
        assert sources.content(tmp_path / "fetched" / root.name) == sources.content(whole)
