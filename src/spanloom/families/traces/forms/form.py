"""What a form of reasoning traces is, and a trace as the JSON that `check_trace` takes.

In: texts and metadata. Out: JSON objects of traces, not checked yet; `NoTraceError`, why a record gives none.

Metadata keeps all keys of a record that no text of the trace was made of. An ingest sets `source`; a record's own is
kept as `record_source`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TRACE_VERSION = "1.0"
STEP_TYPE = "reasoning"
"""The type of a step whose record names none."""


class NoTraceError(ValueError):
    """A record, or a part of it, that gives no trace. `reason`: a few words, the same for all such records."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class TraceForm:
    """A form that records have.

    title   for a person
    keys    which keys of a record become which part of a trace: prompt, steps, answer
    traces  a record → JSON objects of traces, and a NoTraceError for each part of it that gives none; raises
            NoTraceError for a record that gives nothing
    """

    title: str
    keys: Mapping[str, str]
    traces: Callable[[Mapping[str, Any]], Sequence[dict[str, Any] | NoTraceError]]

    def described(self) -> list[str]:
        """Lines for a person: the form, and what becomes of its keys."""
        return [
            f"form: {self.title}",
            *(f"  {part} ← {key}" for part, key in self.keys.items()),
            "  meta ← all other keys",
        ]


def trace_json(
    prompt: Any, steps: Sequence[Any], answer: Any, rest: Mapping[str, Any], *, types: Sequence[Any] = ()
) -> dict[str, Any]:
    """A trace. `types`: of each step, where the record names them; `rest`: what becomes metadata."""
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
