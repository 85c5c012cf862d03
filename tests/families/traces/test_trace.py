"""What a trace may be, its canonical JSON and the id that follows from it."""

import json
import sys
import uuid
from typing import Any

import pytest
from hypothesis import given

from spanloom.families.traces.trace import (
    MAX_DEPTH,
    NAMESPACE,
    Trace,
    canonical_trace,
    check_trace,
    checked_trace,
    json_text,
    numbered_id_text,
    parse_text,
)
from support.traces import payloads


def trace(**changed: Any) -> dict[str, Any]:
    steps = [{"i": 0, "type": "reasoning", "content": "c"}]
    return {"trace_version": "1.0", "prompt": "q", "final_answer": "a", "steps": steps, **changed}


def step(**changed: Any) -> dict[str, Any]:
    return {"i": 0, "type": "t", "content": "c", **changed}


def test_limits_count_code_points() -> None:
    assert check_trace(trace(prompt="😀" * 50_000, final_answer="é" * 50_000, steps=[step(content="𝟙" * 20_000)]))
    for wrong in (
        trace(prompt="😀" * 50_001),
        trace(final_answer="a" * 50_001),
        trace(steps=[step(content="c" * 20_001)]),
        trace(steps=[step(type="t" * 65)]),
        trace(trace_version="1" * 65),
        trace(prompt=""),
        trace(final_answer=""),
        trace(steps=[]),
        trace(steps=[step(i=i) for i in range(1001)]),
    ):
        with pytest.raises(ValueError):
            check_trace(wrong)


def test_blank_text_passes() -> None:
    assert check_trace(trace(prompt=" ", final_answer="\n", steps=[step(content="\t")])).prompt == " "


def test_indices_may_be_whole_floats_and_decimal_texts_but_no_booleans() -> None:
    given = trace(steps=[step(i="0"), step(i=1.0), step(i=2**70)])
    assert [each["i"] for each in check_trace(given).payload["steps"]] == [0, 1, 2**70]
    for wrong in (True, False, 0.5, -1, "x", None):
        with pytest.raises(ValueError, match=r"steps\.0\.i"):
            check_trace(trace(steps=[step(i=wrong)]))
    with pytest.raises(ValueError, match="unique"):
        check_trace(trace(steps=[step(i=1), step(i=1.0)]))


def test_text_is_made_of_nothing_else() -> None:
    for wrong in (1, None, True, ["x"]):
        with pytest.raises(ValueError, match="prompt"):
            check_trace(trace(prompt=wrong))


def test_unknown_keys_are_dropped_and_a_missing_meta_is_null() -> None:
    payload = check_trace({**trace(), "more": 1, "steps": [{**step(), "more": 2}]}).payload
    assert list(payload) == ["trace_version", "prompt", "final_answer", "steps", "meta"]
    assert payload["meta"] is None
    assert list(payload["steps"][0]) == ["i", "type", "content"]


@pytest.mark.parametrize("meta", [[1], "x", 1, True])
def test_meta_is_an_object(meta: Any) -> None:
    with pytest.raises(ValueError, match="meta"):
        check_trace(trace(meta=meta))


def test_numbers_beyond_a_double_are_refused_since_no_line_of_an_export_could_be_read_again() -> None:
    largest = int(sys.float_info.max)
    assert check_trace(trace(meta={"n": largest, "of": [-largest]}, steps=[step(i=largest)]))
    for wrong in (trace(meta={"n": 10**400}), trace(meta={"of": [-(10**400)]}), trace(steps=[step(i=10**400)])):
        with pytest.raises(ValueError, match="double"):
            check_trace(wrong)


def test_what_json_cannot_hold_is_refused_in_meta_too() -> None:
    for wrong in ({"a": "\ud800"}, {"\udc00": 1}, {"a": [float("nan")]}, {"a": float("inf")}):
        with pytest.raises(ValueError, match="meta"):
            check_trace(trace(meta=wrong))
    for wrong in (trace(prompt="\ud800"), trace(steps=[step(content="a\udfff")])):
        with pytest.raises(ValueError, match=r"prompt|content"):
            check_trace(wrong)
    deep: dict[str, Any] = {}
    for _ in range(MAX_DEPTH - 1):
        deep = {"a": deep}
    assert parse_text(json_text(check_trace(trace(meta=deep)).payload))["meta"] == deep
    with pytest.raises(ValueError, match="nested deeper"):
        check_trace(trace(meta={"a": deep}))


@given(payloads())
def test_a_payload_is_stored_as_it_is(value: dict[str, Any]) -> None:
    payload = Trace.model_validate(value).payload
    text = json_text(payload)
    assert "\x00" not in text
    back = parse_text(text)
    assert json.dumps(back) == json.dumps(payload)  # the order of keys, and 1 is not 1.0


@given(payloads())
def test_the_id_is_that_of_sorted_json_and_a_count(value: dict[str, Any]) -> None:
    trace = checked_trace(value)
    canonical = json.dumps(trace.payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    repeats: dict[bytes, int] = {}
    for repeat in range(13):
        wanted = uuid.uuid5(NAMESPACE, f"{canonical}#{repeat}")
        assert numbered_id_text(canonical_trace(trace), repeats) == str(wanted)


def test_the_namespace_is_the_one_of_the_cases(trace_cases: Any) -> None:
    said = json.loads((trace_cases / "fixtures/ingest/expected_content_ids.json").read_bytes())
    assert str(NAMESPACE) == said["namespace"]
