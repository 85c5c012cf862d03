"""Laws of rejects: how many a shard may have, and what is said of each."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.conversations.source.rejects import Reason, Reject, reject_limit
from spanloom.errors import RejectedRowError, SpanloomError


@pytest.mark.parametrize(
    ("limit", "rows", "expected"),
    [
        ("0", 10, 0),
        ("7", 10, 7),
        ("7", 0, 7),
        ("0%", 1000, 0),
        ("100%", 1000, 1000),
        ("100%", 0, 0),
        ("10%", 9, 0),
        ("10%", 10, 1),
        ("10%", 19, 1),
        ("0.1%", 999, 0),
        ("0.1%", 1000, 1),
        # Binary floats would make 28 of this: 29 * 100 * 0.01 is 28.999…
        ("29%", 100, 29),
        ("0.1%", 20_000_000, 20_000),
    ],
)
def test_a_limit_is_a_number_or_a_share_rounded_down(limit: str, rows: int, expected: int) -> None:
    assert reject_limit(limit, rows) == expected


@given(st.decimals(0, 100, places=3), st.integers(0, 10**8))
def test_a_share_never_allows_more_than_the_share_nor_a_whole_row_less(percent: Decimal, rows: int) -> None:
    allowed = reject_limit(f"{percent}%", rows)
    assert allowed * 100 <= rows * percent < (allowed + 1) * 100


@pytest.mark.parametrize(
    "limit",
    ["", " ", "%", "x", "x%", "-1", "-0.1%", "100.1%", "0.5", "1%%", "%1", "1,5%", "nan", "NaN%", "inf", "inf%"],
)
def test_a_limit_that_is_neither_is_refused(limit: str) -> None:
    with pytest.raises(
        SpanloomError, match=r"^--max-rejects takes a whole number .* or a percentage .*, not '"
    ) as said:
        reject_limit(limit, 1000)
    assert str(said.value).endswith(f"not {limit!r}")


def test_a_reject_is_one_line_of_json_with_its_keys_in_order() -> None:
    reject = Reject(shard=2, row=41, id=None, reason=Reason.NOT_UTF8, detail="line 1\nline 2 é", id_column="synth_id")
    line = reject.as_json_line()
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "shard": 2,
        "row": 41,
        "synth_id": None,
        "reason": "not_utf8",
        "detail": "line 1\nline 2 é",
    }
    assert list(json.loads(line)) == sorted(json.loads(line))


@pytest.mark.parametrize(("allowed", "more"), [(0, ""), (5, " (more than 5 rows rejected)")])
def test_a_reject_beyond_the_limit_says_what_where_and_what_to_do(allowed: int, more: str) -> None:
    refused = {"shard": 2, "row": 41, "id": "a", "id_column": "synth_id"}
    reject = Reject(**refused, reason=Reason.NO_MESSAGES, detail="empty")  # type: ignore[arg-type]
    error = reject.as_error(allowed=allowed, shard="shard 02, source/c.parquet")
    assert type(error) is RejectedRowError
    assert str(error) == (
        f"no_messages: empty{more}\n"
        "  where: shard 02, source/c.parquet, row 41, synth_id 'a'\n"
        "  remedy: fix the row, or let the build set bad rows aside with --max-rejects N (or 0.1%)"
    )


def test_the_error_names_the_message_and_the_remedy_that_the_reject_has() -> None:
    more = {"run": 3, "remedy": "take it out"}
    reject = Reject(shard=0, row=1, id="a", id_column="id", reason="text_dropped", detail="d", more=more)
    assert str(reject.as_error(allowed=0, shard="shard 00, c.parquet")) == (
        "text_dropped: d\n  where: shard 00, c.parquet, row 1, id 'a', message 3\n"
        "  remedy: take it out, or let the build set bad rows aside with --max-rejects N (or 0.1%)"
    )
    assert json.loads(reject.as_json_line())["run"] == 3


def test_reasons_are_told_apart_by_their_text() -> None:
    assert len({reason.value for reason in Reason}) == len(Reason) == 31
