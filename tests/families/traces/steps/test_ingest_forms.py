"""The step that ingests reads data of others as `spanloom traces ingest` does: the same forms, the same traces."""

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from spanloom.errors import SpanloomError
from spanloom.families.traces.errors import TraceError
from spanloom.families.traces.steps import ingest_traces
from spanloom.families.traces.store.opening import default_url, file_url, open_store

BEGAN = "2026-01-01T00:00:00Z"
QUESTION = {"question": "1 + 1?", "answer": "One and one.\nThat is two.\n#### 2"}
OTHER = {"q": {"text": "2 + 2?"}, "thought": ["Add.", "Four."], "solution": "4"}
LONG = {**OTHER, "q": {"text": "3 + 3?"}, "thought": "c" * 30_000}
OWN = {
    "trace_version": "1.0",
    "prompt": "3 + 3?",
    "final_answer": "6",
    "steps": [{"i": 0, "type": "sum", "content": "3 + 3 = 6"}],
}
MAP = "prompt=q.text,answer=solution,steps=thought"
LIMIT = 40_000


def written(path: Path, *records: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def traces(url: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Id, time and payload of all traces of a store, in the order of their ids."""
    store = open_store(url)
    try:
        with store.snapshot() as snapshot:
            ids = sorted(head.id for head in snapshot.heads(limit=100, offset=0))
            return [(trace.id, str(trace.created_at), trace.payload) for trace in snapshot.traces(ids)]
    finally:
        store.close()


@pytest.mark.parametrize("name", ["forms", "map"])
def test_the_step_makes_the_traces_of_the_command(cli: Cli, tmp_path: Path, name: str) -> None:
    source = tmp_path / "in"
    options: dict[str, Any] = {"maps": MAP.split(","), "max_step_characters": LIMIT} if name == "map" else {}
    if name == "map":
        written(source / "a.jsonl", OTHER, {**OTHER, "solution": 4}, {"q": 1})
        written(source / "b.jsonl", LONG)
    else:
        written(source / "a.jsonl", QUESTION, {"question": "x"})
        written(source / "sub/b.jsonl", OWN)
        (source / "README.json").write_text('{"about": "these files"}')
    store = tmp_path / "store.sqlite"
    done = ingest_traces.run(source=str(source), store=str(store), source_name="s", created_at=BEGAN, **options)
    given = ("--map", MAP, "--max-step-characters", LIMIT) if name == "map" else ()
    root = tmp_path / "root"
    cli("traces", "ingest", source, "--source-name", "s", "--created-at", BEGAN, "--root", root, *given)
    made = traces(file_url(store))
    assert made == traces(default_url(root))
    assert len(made) == done["ingested_count"] == 2
    if name == "map":
        assert done["left_out"] == {"a key is missing": 1, "a key is no text": 1}
        assert done["files"] == {"a.jsonl": 1, "b.jsonl": 1}
    else:
        assert done["skipped_count"] == sum(done["left_out"].values()) == 1
        assert done["files"] == {"a.jsonl": 1, "sub/b.jsonl": 1}
    assert {payload["prompt"] for *_, payload in made} == (
        {"2 + 2?", "3 + 3?"} if name == "map" else {"1 + 1?", "3 + 3?"}
    )


def test_what_cannot_be_read_is_refused_and_leaves_no_store(tmp_path: Path) -> None:
    source, store = written(tmp_path / "a.jsonl", LONG), tmp_path / "store.sqlite"
    place = {"source": str(source), "store": str(store), "source_name": "s"}
    with pytest.raises(SpanloomError, match="--map lacks answer, steps"):
        ingest_traces.run(**place, maps=["prompt=q"])
    with pytest.raises(TraceError, match="No valid traces found"):
        ingest_traces.run(**place)
    with pytest.raises(TraceError) as refused:
        ingest_traces.run(**place, maps=MAP.split(","))
    assert "--max-step-characters" in str(refused.value)
    assert list(tmp_path.iterdir()) == [source]


def test_the_options_of_the_step(cli: Cli, tmp_path: Path) -> None:
    place = ("--source", written(tmp_path / "a.jsonl", LONG), "--source-name", "s")
    named = cli(
        "step", "ingest-traces", *place, "--store", tmp_path / "s", "--map", MAP, "--max-step-characters", LIMIT
    )
    assert named.returncode == 0, named.stderr
    assert json.loads(named.stdout)["ingested_count"] == 1
    empty = cli("step", "ingest-traces", *place, "--store", tmp_path / "t", "--map", "", "--max-step-characters", 0)
    assert empty.returncode == 1, "as the pipeline gives them where they are not set"
