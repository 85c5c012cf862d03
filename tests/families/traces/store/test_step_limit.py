"""The limit of a step: 20,000 characters by default, remembered by the store, named where a step is longer."""

import json
from pathlib import Path
from typing import Any

import pytest

from spanloom.errors import OptionError
from spanloom.families.traces.errors import TraceError
from spanloom.families.traces.store.ingest import ingest_file
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.trace import FAULTS_SHOWN, check_trace, checked_trace


def trace(*contents: str, **changed: Any) -> dict[str, Any]:
    steps = [{"i": number, "type": "t", "content": content} for number, content in enumerate(contents)]
    return {"trace_version": "1.0", "prompt": "q", "final_answer": "a", "steps": steps, **changed}


def test_the_store_remembers_the_limit(new_store: Any, tmp_path: Path) -> None:
    url = new_store()
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps(trace("c" * 20_001)) + "\n")
    store = open_store(url, create=True)
    with pytest.raises(TraceError) as told:
        ingest_file(store, path, source_name="s")
    assert "--max-step-characters allows up to 1,000,000" in str(told.value.where)
    store.remember_step_limit(20_001)
    store.close()
    again = open_store(url)
    assert again.max_step_characters == 20_001
    assert ingest_file(again, path, source_name="s").ingested_count == 1
    with pytest.raises(OptionError):
        again.remember_step_limit(1_000_001)
    again.close()


def test_a_store_without_settings_has_the_default(tmp_path: Path) -> None:
    store = open_store(default_url(tmp_path), create=True)
    assert store.max_step_characters == 20_000
    store.close()


@pytest.mark.parametrize("count", [3, FAULTS_SHOWN, FAULTS_SHOWN + 7])
def test_all_faults_are_listed(count: int) -> None:
    with pytest.raises(ValueError) as told:
        check_trace(trace(*[""] * count))
    texts = str(told.value).split("; ")
    assert [text.partition(":")[0] for text in texts[:count]][:FAULTS_SHOWN] == [
        f"steps.{number}.content" for number in range(min(count, FAULTS_SHOWN))
    ]
    assert texts[FAULTS_SHOWN:] == (["7 more faults"] if count > FAULTS_SHOWN else [])


@pytest.mark.parametrize(
    "value",
    [
        trace("c"),
        trace("c", meta=None),
        trace("c", meta={"a": [1.5, {"b": "é"}]}),
        trace("c", more=1),
        trace("c", prompt="\ud800"),
        trace("c", meta={"x": "\udfff"}),
        trace("c", steps=[{"i": "0", "type": "t", "content": "c"}, {"i": 1.0, "type": "t", "content": "c"}]),
        trace("c", steps=[{"i": True, "type": "t", "content": "c"}]),
        trace("c", steps=[{"i": 2**70, "type": "t", "content": "c"}]),
        trace("c", meta={"n": float("nan")}),
        trace(),
        trace("c" * 20_001),
        [],
    ],
)
def test_the_fast_check_decides_as_the_model_does(value: Any) -> None:
    expected, fault = outcome(check_trace, value)
    checked, told = outcome(checked_trace, value)
    assert told == fault
    if fault is None:
        assert (checked.payload, checked.char_count) == (expected.payload, expected.char_count)


def outcome(check: Any, value: Any) -> tuple[Any, str | None]:
    try:
        return check(value), None
    except ValueError as fault:
        return None, str(fault)
