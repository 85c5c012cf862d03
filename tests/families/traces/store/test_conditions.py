"""`--where`: numbers of meta and of the trace itself, and duplicates by content."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from spanloom.errors import OptionError
from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.store.database import Store
from spanloom.families.traces.store.ingest import ingest_file
from spanloom.families.traces.store.opening import default_url, open_store


def trace(prompt: str, steps: int, **meta: Any) -> dict[str, Any]:
    return {
        "trace_version": "1.0",
        "prompt": prompt,
        "final_answer": "a",
        "steps": [{"i": number, "type": "t", "content": f"step {number}"} for number in range(steps)],
        "meta": meta,
    }


TRACES = [
    trace("p", 1, reward=0.0, n=0),
    trace("p", 2, reward=1, n=1),
    trace("q", 3, reward=0.5, score={"x": 2}, n=2),
    trace("q", 3, reward=True, score={"x": -1}, n=3),
    trace("r", 4, n=4),
]


def built(store: Store, root: Path, *where: str, **more: Any) -> list[int]:
    """The numbers of the traces that pass, newest first."""
    request = BuildRequest(dataset_name="d", dataset_version="1", where=list(where), **more)
    manifest, _ = build_dataset(store, root, request)
    assert manifest.provenance.get("where") == (list(where) or None)
    with store.snapshot() as snapshot:
        return [trace.payload["meta"]["n"] for trace in snapshot.traces(manifest.ids)]


@pytest.mark.parametrize(
    ("where", "numbers"),
    [
        (["reward >= 0.5"], [2, 1]),
        (["reward<1"], [2, 0]),
        (["reward = 0"], [0]),
        (["reward != 0"], [2, 1]),
        (["score.x > 0"], [2]),
        (["count(steps) <= 2"], [1, 0]),
        (["count(steps) == 3", "reward > -1"], [2]),
        (["count(characters) < 10"], [0]),
        (["unique(prompt)"], [4, 3, 1]),
        (["unique(content)"], [4, 3, 1, 0]),
        (["unique(prompt)", "reward >= 0"], [2, 1]),
    ],
)
def test_what_passes(tmp_path: Path, where: list[str], numbers: list[int]) -> None:
    store = open_store(default_url(tmp_path), create=True)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(each) + "\n" for each in TRACES))
    ingest_file(store, tmp_path / "t.jsonl", source_name="s")
    assert built(store, tmp_path, *where) == numbers
    assert built(store, tmp_path) == [4, 3, 2, 1, 0]
    store.close()


@pytest.mark.parametrize("text", ["", "reward", "reward >", "reward >= x", "unique(steps)", "foo(x) > 1", "> 1"])
def test_what_is_no_condition(text: str) -> None:
    with pytest.raises(ValidationError, match="no condition"):
        BuildRequest(dataset_name="d", dataset_version="1", where=[text])


def test_the_provenance_keeps_the_conditions(tmp_path: Path) -> None:
    store = open_store(default_url(tmp_path), create=True)
    with pytest.raises(OptionError, match="where"):
        built(store, tmp_path, "reward > 0", provenance={"where": "mine"})
    store.close()
