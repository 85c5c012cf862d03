"""Traces → JSON Lines for trainers, in one of four formats, row by row.

In: ids in their order, a snapshot of the store. Out: one line of JSON each, in ASCII; deleted traces have none.

    trace             id, prompts, trace_steps, final_answer, metadata     the trace unchanged
    tunix_sft         id, prompts, final_answer, metadata                  `prompts`: the whole turn in Gemma's template
    training_example  id, prompt, response, metadata                       for any model; the line has an id of its own
    messages          id, messages, metadata                               a conversation, steps as `reasoning_content`

`metadata` begins with the exporter's keys; the trace's `meta` follows.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args
from uuid import UUID, uuid5

from spanloom.errors import OptionError
from spanloom.families.traces import render
from spanloom.families.traces.defaults import CONTROL_TOKENS, PROTECT_METADATA
from spanloom.families.traces.errors import TraceError
from spanloom.families.traces.render import CONTROL_STRINGS, ControlTokens, TraceTexts
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.database import Snapshot, StoredTrace
from spanloom.provenance import canonical_json

ExportFormat = Literal["trace", "tunix_sft", "training_example", "messages"]
FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
CONTENT_TYPE = "application/x-ndjson"

_REFUSED_SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options that change the bytes of an export, besides its format.

    protect_metadata  the exporter's own keys win; conflicting keys of `meta` move to `metadata.meta`
    control_tokens    how control strings in content are handled; `text`: copied, and encoded as text in a token dataset
    sort_steps        steps in the order of their index instead of the list's order
    system            a text before every prompt (not in the format `trace`)

    Raises OptionError for a system text with control strings, unless these are copied.
    """

    protect_metadata: bool = PROTECT_METADATA
    control_tokens: ControlTokens | Literal["text"] = CONTROL_TOKENS
    sort_steps: bool = False
    system: str | None = None

    def __post_init__(self) -> None:
        if self.control_tokens not in ("verbatim", "text") and render.count_controls(self.system or ""):
            raise OptionError(
                "the system text holds control strings of the template",
                remedy="change it, or copy all control strings: --control-tokens verbatim",
            )


class ControlStringsError(TraceError):
    """Traces contain control strings, which the options refuse."""


def record(trace: StoredTrace, form: ExportFormat, options: ExportOptions) -> dict[str, Any]:
    """One line of an export as JSON."""
    texts = texts_of(trace, options)
    own = {"created_at": timestamps.exported(trace.created_at), "trace_version": trace.payload["trace_version"]}
    row: dict[str, Any]
    if form == "trace":
        row = {"id": trace.id, "prompts": texts.prompt, "trace_steps": texts.steps, "final_answer": texts.final_answer}
    elif form == "tunix_sft":
        row = {
            "id": trace.id,
            "prompts": render.chat_text(texts, options.system),
            "final_answer": texts.final_answer,
        }
        own = {**own, "format": "tunix_sft"}
    elif form == "messages":
        row = {"id": trace.id, "messages": render.messages(texts, _system_text(trace, options))}
        own = {**own, "format": "messages"}
    else:
        row = {
            "id": str(uuid5(UUID(trace.id), "training_example")),
            "prompt": render.instructed(texts, options.system),
            "response": render.response(texts),
        }
        own = {"source_trace_id": trace.id, **own}
    return {**row, "metadata": metadata(own, trace.payload["meta"], protect=options.protect_metadata)}


def _system_text(trace: StoredTrace, options: ExportOptions) -> str:
    """The system text of the export, then that of the trace: `meta.system`, if it is text."""
    own = (trace.payload["meta"] or {}).get("system")
    return "\n\n".join(text for text in (options.system, own) if isinstance(text, str) and text)


def texts_of(trace: StoredTrace, options: ExportOptions) -> TraceTexts:
    """The texts of a trace for an export."""
    texts = render.texts_of(trace.payload, sort_steps=options.sort_steps)
    return render.escaped(texts) if options.control_tokens == "escape" else texts


def metadata(own: dict[str, Any], meta: Mapping[str, Any] | None, *, protect: bool) -> dict[str, Any]:
    """The exporter's keys, then those of `meta`, which win unless `protect`.

        own {"format": "tunix_sft"}, meta {"format": "mine", "k": 1}
        protect       {"format": "tunix_sft", "k": 1, "meta": {"format": "mine"}}
        otherwise     {"format": "mine", "k": 1}

    A key `meta` inside `meta` also moves if another key does, so that neither is lost.
    """
    if not meta:
        return own
    if not protect or own.keys().isdisjoint(meta):
        return {**own, **meta}
    moved = own.keys() | {"meta"}
    kept = {key: value for key, value in meta.items() if key not in moved}
    return {**own, **kept, "meta": {key: value for key, value in meta.items() if key in moved}}


def export_lines(snapshot: Snapshot, ids: Sequence[str], form: ExportFormat, options: ExportOptions) -> Iterator[bytes]:
    """The lines, each with its line break; memory holds one page of the store. Call `check_controls` first."""
    for trace in snapshot.traces(ids):
        yield line_of(record(trace, form, options))


def line_of(value: Mapping[str, Any]) -> bytes:
    """One line of JSON: ASCII, separators `, ` and `: `."""
    return json.dumps(value).encode() + b"\n"


def check_controls(
    snapshot: Snapshot,
    ids: Sequence[str],
    strings: Collection[str] = CONTROL_STRINGS,
    *,
    whose: str = "the template",
    remedy: str = "change them, or give --control-tokens escape or verbatim",
) -> None:
    """Raises ControlStringsError with the ids of all traces whose content contains one of the strings."""
    refused = [
        trace.id
        for trace in snapshot.traces(list(dict.fromkeys(ids)))
        if render.holds(render.texts_of(trace.payload), strings)
    ]
    if refused:
        more = f" and {len(refused) - _REFUSED_SHOWN:,} more" if len(refused) > _REFUSED_SHOWN else ""
        raise ControlStringsError(
            f"{len(refused):,} trace{' holds' if len(refused) == 1 else 's hold'} control strings of {whose}: "
            + ", ".join(refused[:_REFUSED_SHOWN])
            + more,
            remedy=remedy,
        )


def etag(build_id: UUID, form: ExportFormat, options: ExportOptions, present: Sequence[tuple[str, str]]) -> str:
    """The ETag of an export's bytes, from the build, format, options, and the traces that still exist.

    `present`: id and created_at. A trace that was deleted and stored again has the same id and another time.
    """
    parts = [str(build_id), form, list(map(list, present)), *([] if options == ExportOptions() else [asdict(options)])]
    return hashlib.sha256(canonical_json(parts)).hexdigest()
