"""Reasons to refuse a row, and the allowed number of refused rows.

In: a fault in a row. Out: `Reject`, one line of `rejects/shard_NN.jsonl` and one count in the manifest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

from spanloom.errors import RejectedRowError, SpanloomError
from spanloom.provenance import canonical_json


class Reason(StrEnum):
    """All reasons to refuse a row."""

    SYNTH_ID_MISSING = "synth_id_missing"
    SYNTH_ID_NOT_STRING = "synth_id_not_string"
    SYNTH_ID_MISMATCH = "synth_id_mismatch"
    ID_MISSING = "id_missing"
    ID_NOT_STRING = "id_not_string"
    ID_MISMATCH = "id_mismatch"
    METADATA_JSON_INVALID = "metadata_json_invalid"
    MESSAGES_JSON_MISSING = "messages_json_missing"
    MESSAGES_JSON_INVALID = "messages_json_invalid"
    DUPLICATE_KEY = "duplicate_key"
    NOT_UTF8 = "not_utf8"
    NO_MESSAGES_LIST = "no_messages_list"
    NO_MESSAGES = "no_messages"
    NO_ASSISTANT = "no_assistant"
    MESSAGE_NOT_OBJECT = "message_not_object"
    ROLE_UNKNOWN = "role_unknown"
    CHANNEL_UNKNOWN = "channel_unknown"
    KEY_UNKNOWN = "key_unknown"
    HEADER_INVALID = "header_invalid"
    NOTHING_TRAINED = "nothing_trained"
    FIELD_INVALID = "field_invalid"
    EFFORT_UNKNOWN = "effort_unknown"
    SYSTEM_TWICE = "system_twice"
    SYSTEM_NOT_FIRST = "system_not_first"
    TOOL_CALLS_PARALLEL = "tool_calls_parallel"
    TOOL_RESULT_UNMATCHED = "tool_result_unmatched"
    ASSISTANT_AFTER_ANSWER = "assistant_after_answer"
    ASSISTANT_IN_A_ROW = "assistant_in_a_row"
    ANSWER_MISSING = "answer_missing"
    RENDERER_REFUSED = "renderer_refused"
    TOO_LONG = "too_long"


NO_FAULTS = frozenset({Reason.TOO_LONG})
"""Reasons that are no faults of the row: an option leaves it out. Such rows are listed and counted with the others, but
no limit holds for them."""


def faults_in(rejected: Mapping[str, int]) -> int:
    """How many rows were refused for a fault. `rejected`: rows by reason."""
    return sum(rows for reason, rows in rejected.items() if reason not in NO_FAULTS)


def too_long(tokens: int, longest: int) -> str:
    """The detail of a row with a document of so many tokens. `longest`: as `--longest` says."""
    return f"it makes a document of {tokens} tokens, --longest allows {longest}"


class RowRefusedError(Exception):
    """A fault in one row. The code that knows the row's number turns it into a `Reject`. `remedy`: if there is one."""

    def __init__(self, reason: Reason, detail: str, remedy: str | None = None) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail, self.remedy = reason, detail, remedy


@dataclass(frozen=True, kw_only=True)
class Reject:
    """One refused row. `row` counts from 0 in its shard; `id` is null if the id is the fault; `id_column`: the id's
    name in the source. `more`: further keys of its line; of these, the error names `run`, the number of a message, and
    `remedy`."""

    shard: int
    row: int
    id: str | None
    reason: str
    detail: str
    id_column: str
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_json_line(self) -> bytes:
        fields = {"shard": self.shard, "row": self.row, "reason": self.reason, "detail": self.detail}
        return canonical_json({**fields, self.id_column: self.id, **self.more}) + b"\n"

    def as_error(self, *, allowed: int, shard: str) -> RejectedRowError:
        """The error that stops a build at this row. `shard`: names it."""
        message = "" if self.more.get("run") is None else f", message {self.more['run']}"
        return RejectedRowError(
            f"{self.reason}: {self.detail}" + (f" (more than {allowed} rows rejected)" if allowed else ""),
            where=f"{shard}, row {self.row}, {self.id_column} {self.id!r}{message}",
            remedy=f"{self.more.get('remedy') or 'fix the row'}, or let the build set bad rows aside with "
            "--max-rejects N (or 0.1%)",
        )


def too_many_rejects(shard: Mapping[str, Any], limit: str | None) -> bool:
    """Whether more rows of a shard were refused than allowed. `shard`: its `rejected`, by reason, and its `rows_read`;
    `limit`: see `reject_limit`, None for any number."""
    return limit is not None and faults_in(shard["rejected"]) > reject_limit(limit, shard["rows_read"])


def reject_limit(limit: str, rows: int) -> int:
    """How many rejects a shard of `rows` rows may have: `limit` is a number, or a share such as `0.1%` (rounded down).

    Raises SpanloomError if `limit` is neither.
    """
    try:
        value, is_share = Decimal(limit.removesuffix("%")), limit.endswith("%")
        if "e" in limit.lower() or not value.is_finite():  # writing out 1e99999999 would never end
            raise ValueError
        if value < 0 or (value > 100 if is_share else value != int(value)):
            raise ValueError
        return int(rows * value / 100 if is_share else value)
    except (InvalidOperation, ValueError, OverflowError):
        raise SpanloomError(
            f"--max-rejects takes a whole number of rows per shard or a percentage such as 0.1%, not {limit!r}"
        ) from None
