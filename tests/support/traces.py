"""Traces for tests: the recorded cases, stores filled with their rows, and traces that Hypothesis makes."""

import json
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.database import Store, new_row
from spanloom.families.traces.trace import Trace
from support.cases import cases_of

CASES = cases_of("traces")

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30) | st.sampled_from(
    [
        *("<end_of_turn>", "<start_of_turn>model\n", "\u2028", "a\x00b", "👩‍👩‍👧‍👦"),
        *("\u202eשלום", "Answer: x", "Reasoning:\n1. y", " ", "é"),
    ]
)
_SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**25), 10**25) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
JSON = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)
META = st.none() | st.dictionaries(
    st.sampled_from(["source", "level", "created_at", "trace_version", "format", "source_trace_id", "meta"]) | TEXT,
    JSON,
    max_size=5,
)


@st.composite
def payloads(draw: st.DrawFn) -> dict[str, Any]:
    """A trace as JSON, as its maker would send it."""
    indices = draw(st.lists(st.integers(0, 2**70), min_size=1, max_size=4, unique=True))
    steps = [{"i": i, "type": draw(TEXT)[:64], "content": draw(TEXT)} for i in indices]
    return {
        "trace_version": draw(TEXT)[:64],
        "prompt": draw(TEXT),
        "final_answer": draw(TEXT),
        "steps": steps,
        "meta": draw(META),
    }


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def rows_of(cases: Path) -> list[dict[str, Any]]:
    """The rows of the recorded store."""
    return [json.loads(line) for line in (cases / "fixtures/rows.jsonl").read_bytes().splitlines()]


def store_rows(store: Store, rows: list[dict[str, Any]]) -> None:
    """Stores recorded rows under their ids and times."""

    def recorded(row: dict[str, Any]) -> dict[str, Any]:
        return new_row(row["id"], timestamps.given(row["created_at"]), Trace.model_validate(row["payload"]))

    with store.writing() as writer:
        writer.add([recorded(row) for row in rows])


def json_lines(path: Path, values: list[Any]) -> Path:
    """Writes values as JSON Lines."""
    path.write_bytes(b"".join(json.dumps(value).encode() + b"\n" for value in values))
    return path
