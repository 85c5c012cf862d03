"""Bodies weighed before they are parsed: counts of items, and a weight that is never below what parsing takes."""

import json
import random
import sys
from typing import Any

import pytest
from fastapi import HTTPException
from hypothesis import given
from hypothesis import strategies as st

from spanloom.service import bodies
from spanloom.service.bodies import check_memory, is_json, shape

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=4), inner, max_size=5),
    max_leaves=30,
)


def size_of(value: Any, seen: set[int]) -> int:
    """Bytes of a value and all in it, each object once; those that the interpreter shares are not counted."""
    shared = (isinstance(value, str) and len(value) < 2) or value is None or isinstance(value, bool)
    if shared or (isinstance(value, int) and -5 <= value <= 256) or id(value) in seen:
        return 0
    seen.add(id(value))
    items = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return sys.getsizeof(value) + sum(size_of(item, seen) for item in items)


@given(VALUES, st.booleans(), st.booleans(), st.integers(1, 40))
def test_items_are_counted_and_nothing_weighs_more(value: Any, ascii: bool, blanks: bool, scanned: int) -> None:
    text = json.dumps(
        value, ensure_ascii=ascii, indent=2 if blanks else None, separators=None if blanks else (",", ":")
    )
    body = text.encode("utf-8", "replace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "SCANNED", scanned)
        measured = shape(body)
    assert measured.items == (len(value) if isinstance(value, list) else 0)
    assert measured.memory >= size_of(json.loads(body), set()) * 0.8  # an allocator's rounding goes either way


@pytest.mark.parametrize(
    ("body", "items"),
    [
        ("", 0),
        ("[]", 0),
        (" [ ] ", 0),
        ("[1]", 1),
        ('[",", {"a,b": "],[\\\\\\"", "c": [1, 2]}, []]', 3),
        ('{"a": [1, 2]}', 0),
    ],
)
def test_items_of_a_list(body: str, items: int) -> None:
    assert shape(body.encode()).items == items


def test_what_is_too_dense_is_refused() -> None:
    dense = ("[" + ",".join(['{"":{"":{}}}'] * 300_000) + "]").encode()
    with pytest.raises(HTTPException) as refusal:
        check_memory(dense)
    assert refusal.value.status_code == 413
    check_memory(dense[:10_000])
    check_memory(("[" + ",".join(["{}"] * 1_000_000) + "]").encode())
    numbers = random.Random(1)
    check_memory(json.dumps([{"a": numbers.random(), "b": "text"} for _ in range(100_000)]).encode())


def test_what_counts_as_json() -> None:
    for content_type in ("application/json", "application/JSON; charset=utf-8", "application/x+json"):
        assert is_json(content_type)
    for content_type in (None, "", "text/plain", "text/json", "application/xml", "nonsense"):
        assert not is_json(content_type)
