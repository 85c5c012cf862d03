"""Laws of parsing without repeated keys: the fast way decides exactly as the standard library does."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.records import strict_json

TEXT = st.text(alphabet=st.sampled_from('"\\:,{}[] \n\tné😀a'), max_size=8)


@st.composite
def json_texts(draw: st.DrawFn, depth: int = 3) -> str:
    """JSON in many spellings: any space, escapes or none, numbers of any size, keys that repeat as they like."""
    space = draw(st.sampled_from(["", " ", "\n"]))
    kinds = ["string", "number", "word"] + ["object", "list"] * (depth > 0)
    match draw(st.sampled_from(kinds)):
        case "string":
            return json.dumps(draw(TEXT), ensure_ascii=draw(st.booleans()))
        case "number":
            return draw(st.sampled_from(["0", "-1", "1.5", "1e3", "18446744073709551616", "123456789012345678901"]))
        case "word":
            return draw(st.sampled_from(["true", "false", "null", "NaN", "Infinity"]))
        case "object":
            pairs = draw(
                st.lists(
                    st.tuples(st.sampled_from(['"a"', '"\\u0061"', '"b"', '"\\""', '"\\\\"']), json_texts(depth - 1)),
                    max_size=4,
                )
            )
            return "{" + ",".join(f"{space}{key}{space}:{space}{value}" for key, value in pairs) + space + "}"
        case _:
            return "[" + f"{space},".join(draw(st.lists(json_texts(depth - 1), max_size=3))) + "]"


def as_column(texts: list[str | None]) -> pa.LargeBinaryArray:
    return pa.array([None if text is None else text.encode() for text in texts], pa.large_binary())


def outcome(text: str | bytes, quotes: int | None = None) -> tuple[str, Any]:
    try:
        return "value", strict_json.loads(text, quotes)
    except ValueError as fault:
        return type(fault).__name__, str(fault)


def reference(text: str) -> tuple[str, Any]:
    """The same by the standard library alone, objects kept as pairs until the very end."""

    class Pairs(list[tuple[str, Any]]):
        pass

    def repeated(value: Any) -> bool:
        if isinstance(value, Pairs):
            keys = [key for key, _ in value]
            return len(set(keys)) < len(keys) or any(repeated(item) for _, item in value)
        return isinstance(value, list) and any(map(repeated, value))

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        pairs = json.loads(text, object_pairs_hook=Pairs, parse_constant=refuse)
    except ValueError:
        return "invalid", None
    return ("repeated", None) if repeated(pairs) else ("value", json.loads(text))


def same(found: tuple[str, Any], wanted: tuple[str, Any]) -> bool:
    if "value" in (found[0], wanted[0]):
        # As text, so that 1 and 1.0 and True are three values.
        return found[0] == wanted[0] and json.dumps(found[1]) == json.dumps(wanted[1])
    # Both refuse it. A text may break two rules at once, and then either reason is right.
    return wanted[0] == "invalid" or found[0] == "RepeatedKeyError"


@given(json_texts() | TEXT, st.booleans())
def test_decides_as_the_standard_library_does(text: str, long: bool) -> None:
    """`long`: quotes are counted as in a text of many bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strict_json, "SHORT", 0 if long else strict_json.SHORT)
        assert same(outcome(text), reference(text))


@pytest.mark.parametrize("backslashes", range(6))
@pytest.mark.parametrize("size", [10, strict_json.SHORT])
def test_texts_full_of_escapes_are_not_parsed_twice(
    backslashes: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count that is wrong is put right by the slow way, so it is the slow way that must not be asked."""
    value = {"a": "x" * size + "\\" * backslashes, "b": ["\\" * backslashes + '"', '"' * 3]}
    monkeypatch.setattr(strict_json, "slowly", lambda text: pytest.fail(f"parsed twice: {text!r}"))
    for text in (json.dumps(value), json.dumps(value).encode()):
        assert strict_json.loads(text) == value


@given(st.lists(st.none() | json_texts() | TEXT, max_size=6))
def test_counting_a_batch_at_once_decides_the_same(texts: list[str | None]) -> None:
    counts = strict_json.count_quotes(as_column(texts))
    assert len(counts) == len(texts)
    for text, quotes in zip(texts, counts, strict=True):
        if text is not None:
            assert same(outcome(text.encode(), quotes), reference(text))


@given(st.lists(json_texts() | TEXT, min_size=2, max_size=6), st.data())
def test_a_slice_of_a_batch_is_counted_as_its_own(texts: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(texts)))
    counts = strict_json.count_quotes(as_column(list(texts)).slice(first))
    assert len(counts) == len(texts) - first
    for text, quotes in zip(texts[first:], counts, strict=True):
        assert same(outcome(text.encode(), quotes), reference(text))


@given(st.tuples(json_texts(), st.binary(max_size=3), json_texts()))
def test_bytes_are_text_or_refused(parts: tuple[str, bytes, str]) -> None:
    raw = parts[0].encode() + parts[1] + parts[2].encode()
    (quotes,) = strict_json.count_quotes(pa.array([raw], pa.large_binary()))
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        assert outcome(raw, quotes)[0] == "UnicodeDecodeError"
    else:
        assert same(outcome(raw, quotes), reference(text))


@pytest.mark.parametrize(
    ("texts", "counts"),
    [
        (['{"a": "b"}'], [4]),
        (['{"a": "\\""}', "[]", None], [4, 0, 0]),
        (['{"a": "x\\\\"}', '{"b": ""}'], [None, 4]),  # an escaped backslash, then the closing quote
        (['{"a":\n1}', "[]"], [2, 0]),  # a line feed between tokens
        (["\\", '{"a": 1}'], [0, 2]),  # a text that is not JSON does not bear upon the next
        (['"', '"x"'], [1, 2]),
        ([], []),
    ],
)
def test_quotes_that_begin_or_end_a_string(texts: list[str | None], counts: list[int | None]) -> None:
    assert strict_json.count_quotes(as_column(texts)) == counts


def test_a_repeated_key_is_named_wherever_it_stands() -> None:
    for text in ('{"k":1,"k":2}', '{"a":[{"k":"x","\\u006b":"x"}]}', '{"a":{"k":{},"k":[]}}'):
        with pytest.raises(strict_json.RepeatedKeyError) as refused:
            strict_json.loads(text)
        assert refused.value.key == "k"


def test_integers_keep_their_digits() -> None:
    assert strict_json.loads('{"n": 123456789012345678901}') == {"n": 123456789012345678901}


def test_nesting_that_no_parser_takes_is_an_error_and_not_a_crash() -> None:
    with pytest.raises((ValueError, RecursionError)):
        strict_json.loads("[" * 100_000)


class CountedKey(str):
    """A key that counts how often it is held against another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedKey.compared += 1
        return str.__eq__(self, other)  # type: ignore[no-any-return]

    __hash__ = str.__hash__


def test_finding_the_repeated_key_among_many_takes_no_longer_for_each_of_them() -> None:
    compared = []
    for count in (2_000, 4_000):
        keys = [*range(count), count - 1]
        CountedKey.compared = 0
        with pytest.raises(strict_json.RepeatedKeyError, match=f"the key '{count - 1}' twice"):
            strict_json._unique([(CountedKey(key), 0) for key in keys])
        compared.append(CountedKey.compared)
    assert compared[1] < 3 * compared[0] + 100
    assert compared[1] < 10 * 4_000
