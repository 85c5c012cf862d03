"""How a build runs is said by the same options in every family: replaced, made again, its parts kept."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support import sources
from support.chat_datasets import write_tokenizer
from support.commands import Run

Words = tuple[object, ...]
Prepare = Callable[[Run, Path], tuple[Words, Path]]
"""Function: makes inputs in a folder → the command that builds, and its root."""


@pytest.fixture(autouse=True)
def _known_sha(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANLOOM_GIT_SHA", "0" * 40)


def chess(run: Run, folder: Path) -> tuple[Words, Path]:
    assert run("chess", "sample", "--out", folder / "in", "--games", 3, "--thinking", 3) == 0
    root = folder / "root"
    return ("chess", "prepare", "--source", folder / "in/games", "--out", root, "--quiet"), root


def chat(run: Run, folder: Path) -> tuple[Words, Path]:
    transcripts, root = folder / "transcripts.jsonl", folder / "root"
    text = "".join(f"<|USER|>number {number}<|ASSISTANT|>said<|END|>" for number in range(9))
    transcripts.write_text("".join(json.dumps({"text": text}) + "\n" for _ in range(9)))
    given = ("--input", transcripts, "--tokenizer", write_tokenizer(folder / "tokenizer.json"), "--out", root)
    return ("chat", "pack", *given, "--block-size", 64, "--shards", 2, "--quiet"), root


def traces(run: Run, folder: Path) -> tuple[Words, Path]:
    store = ("traces", "--root", folder / "store")
    tokenizer, root = folder / "tokenizer.json", folder / "root"
    assert run("traces", "sample", "--out", folder / "traces.jsonl", "--tokenizer", tokenizer) == 0
    assert run(*store, "ingest", folder / "traces.jsonl", "--source-name", "s", "--quiet") == 0
    assert run(*store, "build", "--name", "d", "--version", "1") == 0
    made = ("--tokenizer", tokenizer, "--out", root, "--valid-fraction", 0.2, "--shards", 2, "--max-rejects", "1%")
    return (*store, "tokenize", "d-1", *made, "--workers", 1, "--quiet"), root


def toolcalls(run: Run, folder: Path) -> tuple[Words, Path]:
    assert run("toolcalls", "demo", "--out", folder / "in") == 0
    convert = ("toolcalls", "convert", "--from", "ultrachat", "--input", folder / "in/ultrachat.jsonl")
    assert run(*convert, "--out", folder / "samples", "--system", "You have tools.") == 0
    (data,) = (folder / "samples/retain").glob("*.jsonl")
    given = ("--data", data, "--template", folder / "in/chat_template.jinja", "--tokenizer", folder / "in")
    made = ("--out", folder / "roots", "--shards", 2, "--on-duplicate", "keep", "--valid-fraction", 0.2)
    return ("toolcalls", "tokenize", *given, *made, "--quiet"), folder / "roots/retain"


@pytest.mark.parametrize("prepare", [chess, chat, traces, toolcalls], ids=lambda prepare: prepare.__name__)
def test_a_dataset_is_kept_replaced_or_refused(prepare: Prepare, run: Run, tmp_path: Path) -> None:
    command, root = prepare(run, tmp_path)
    assert run(*command) == 0
    before = sources.content(root)
    assert not (root / ".work").exists()
    assert prepare is chess or len(before["shards"]) == 2, "as many as are asked for"
    assert run(*command, "--no-resume") == 1, "a finished dataset is not made again without --overwrite"
    assert run(*command, "--overwrite", "--keep-work") == 0
    assert any((root / ".work").iterdir())
    assert run(*command, "--overwrite") == 0, "what an earlier build kept goes"
    assert sources.content(root) == before
    assert not (root / ".work").exists()


def test_build_takes_the_shards_of_an_earlier_dataset(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = sources.write_source(tmp_path / "source", [sources.rows(3, prefix=f"s{shard}") for shard in range(2)])
    command = ("build", "--source", source, "--shards", 2, "--valid-fraction", 0.5, "--deep", 0)
    assert run(*command, "--out", tmp_path / "one") == 0
    capsys.readouterr()
    assert run(*command, "--out", tmp_path / "two", "--reuse", tmp_path / "one") == 0
    assert "2 of 2 shards are taken from" in capsys.readouterr().err
    assert sources.content(tmp_path / "two") == sources.content(tmp_path / "one")
