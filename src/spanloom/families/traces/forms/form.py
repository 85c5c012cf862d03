"""The definition of a form of reasoning traces, and a trace as JSON for `check_trace`.

In: texts and metadata. Out: JSON objects of traces, not yet checked; `NoTraceError`, why a record gives none.

Metadata keeps all keys of a record that are not part of the trace's texts. An ingest sets `source`; the record's own is
kept as `record_source`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TRACE_VERSION = "1.0"
STEP_TYPE = "reasoning"
"""The type of a step if the record has none."""


class NoTraceError(ValueError):
    """A record, or a part of it, gives no trace. `reason`: a few words, the same for all records with this fault."""

    def __init__(self, reason: str, detail: str, remedy: str | None = None) -> None:
        super().__init__(f"{reason}: {detail}" + (f" ({remedy})" if remedy else ""))
        self.reason, self.detail, self.remedy = reason, detail, remedy


@dataclass(frozen=True, kw_only=True)
class TraceForm:
    """A form of records.

    title   for the user
    keys    part of a trace (prompt, steps, answer) → keys of a record
    traces  a record → JSON objects of traces, and a NoTraceError for each part that gives none; raises NoTraceError
            for a record that gives nothing
    """

    title: str
    keys: Mapping[str, str]
    traces: Callable[[Mapping[str, Any]], Sequence[dict[str, Any] | NoTraceError]]

    def described(self) -> list[str]:
        """Lines for the user: the form, and what happens to its keys."""
        return [
            f"form: {self.title}",
            *(f"  {part} ← {key}" for part, key in self.keys.items()),
            "  meta ← all other keys",
        ]


def trace_json(
    prompt: Any, steps: Sequence[Any], answer: Any, rest: Mapping[str, Any], *, types: Sequence[Any] = ()
) -> dict[str, Any]:
    """A trace as JSON. `types`: of each step, if the record has them; `rest`: becomes metadata."""
    meta = {("record_source" if key == "source" else key): value for key, value in rest.items() if value is not None}
    named = types or [STEP_TYPE] * len(steps)
    return {
        "trace_version": TRACE_VERSION,
        "prompt": prompt,
        "final_answer": answer,
        "steps": [
            {"i": index, "type": kind, "content": content}
            for index, (kind, content) in enumerate(zip(named, steps, strict=True))
        ],
        "meta": meta,
    }


def without(record: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """The record without these keys."""
    return {key: value for key, value in record.items() if key not in keys}


def texts_at(record: Mapping[str, Any], *keys: str) -> bool:
    """Whether the record has a text under each of these keys."""
    return all(isinstance(record.get(key), str) for key in keys)
