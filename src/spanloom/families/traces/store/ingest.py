"""A file of records → the store: one transaction a file, all of it or nothing.

In: a local file, a source name. Out: rows, ids in the order of the records, and which were not taken, with reasons.

An id follows from the content by default: of equal traces in one file the second gets another id than the first, and a
trace that is in the store already is counted and not stored again. So a file ingested twice changes nothing.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from spanloom.families.traces.errors import TraceError
from spanloom.families.traces.forms.form import NoTraceError
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.database import PAGE_ROWS, Store, TraceHead, TraceRow, Writer, new_row
from spanloom.families.traces.store.source import OWN_FORM, FormChoice, read_values
from spanloom.families.traces.trace import Trace, canonical_trace, checked_trace, numbered_id_text
from spanloom.workers import OnProgress

Ids = Literal["content", "random"]

SKIPPED_KEPT = 100
"""Lines that were not taken and are reported one by one; all are counted."""

NOT_VALID = "not a valid trace"
"""The reason of records that break a rule of `Trace`, or are no JSON."""


@dataclass(kw_only=True)
class Ingested:
    """What became of a file. `trace_ids`: those stored now, in the order of the lines; `skipped`: line and reason.

    `left_out`: how many records, or parts of them, were not taken, by reason.
    """

    trace_ids: list[str] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    skipped_count: int = 0
    skipped_existing: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def ingested_count(self) -> int:
        """How many traces were stored."""
        return len(self.trace_ids)

    def skip(self, line: int, fault: ValueError) -> None:
        """Counts a line that was not taken, or a part of it."""
        self.skipped_count += 1
        self.left_out[fault.reason if isinstance(fault, NoTraceError) else NOT_VALID] += 1
        if len(self.skipped) < SKIPPED_KEPT:
            self.skipped.append({"line": line, "reason": str(fault)})

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it, without the counts by reason."""
        counts = {name: value for name, value in vars(self).items() if name != "left_out"}
        return {"ingested_count": self.ingested_count, **counts}


def ingest_file(
    store: Store,
    path: Path,
    *,
    source_name: str,
    ids: Ids = "content",
    strict: bool = False,
    created_at: str | None = None,
    choice: FormChoice = OWN_FORM,
    called: str | None = None,
    on_progress: OnProgress | None = None,
) -> Ingested:
    """Stores the traces of a file. `created_at`: the store's text of the first row's time, None for now.

    `choice`: which forms records may have. `called`: the file as the user named it, for messages and for
    `meta.ingest_source_file`. `on_progress` gets bytes. Raises TraceError where no record gives a valid trace, or
    where one does not and `strict` is set, SourceError where the file cannot be read or unpacked to its end;
    nothing is stored then.
    """
    ingested = Ingested()
    called = called or str(path)
    file_name = Path(called).name
    limit = store.max_step_characters
    times = timestamps.series(created_at or timestamps.now())
    size = path.stat().st_size if path.exists() else 0
    repeats: dict[bytes, int] = {}
    held: list[TraceRow] = []
    valid = 0
    with store.writing() as writer:
        looked_up = not writer.is_empty()
        for number, read, values in read_values(path, called, choice):
            for value in values:
                try:
                    if isinstance(value, ValueError):
                        raise value
                    _set_source(value, source_name, file_name)
                    trace = checked_trace(value, limit)
                except ValueError as fault:
                    if strict:
                        raise TraceError(
                            f"line {number} is no trace: {fault}",
                            where=called,
                            remedy="fix it, or ingest without --strict, which skips such lines and counts them",
                        ) from None
                    ingested.skip(number, fault)
                    continue
                trace_id = str(uuid4()) if ids == "random" else numbered_id_text(canonical_trace(trace), repeats)
                held.append(new_row(trace_id, next(times), trace))
                valid += 1
            if len(held) >= PAGE_ROWS:
                _store(writer, held, ingested, looked_up=looked_up)
                held = []
                if on_progress:
                    on_progress(min(read, size), size)
        if not valid:
            raise TraceError(
                f"No valid traces found in {called}",
                where="line {line}: {reason}".format(**ingested.skipped[0]) if ingested.skipped else None,
                remedy="give JSON Lines of traces (`spanloom traces sample --out FILE` writes some), records of a form "
                "that `spanloom traces ingest` knows, or --map prompt=KEY,answer=KEY,steps=KEY",
            )
        _store(writer, held, ingested, looked_up=looked_up)
    if on_progress:
        on_progress(size, size)
    return ingested


def _set_source(value: Any, source_name: str, file_name: str) -> None:
    """Writes into `meta` where a trace comes from. Raises ValueError for what can hold no metadata."""
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    meta = value.setdefault("meta", {})
    if not isinstance(meta, dict):
        raise ValueError("meta: not an object")
    meta["source"] = source_name
    meta["ingest_source_file"] = file_name


def _store(writer: Writer, rows: list[TraceRow], done: Ingested, *, looked_up: bool) -> None:
    if not rows:
        return
    # Ids of one file differ, so that in a store which was empty there is none to be found.
    existing = writer.existing([row[0] for row in rows]) if looked_up else None
    new = [row for row in rows if row[0] not in existing] if existing else rows
    writer.add(new)
    done.trace_ids.extend(row[0] for row in new)
    done.skipped_existing += len(rows) - len(new)


def add_traces(store: Store, traces: Iterable[Trace]) -> list[TraceHead]:
    """Stores traces with random ids, all or none. The k-th is k microseconds younger than the first.

    Of each trace nothing but the text that is stored is kept, so that an iterator of traces may make them one by one.
    """
    times = timestamps.series(timestamps.now())
    added: list[TraceHead] = []
    rows: list[TraceRow] = []
    for trace in traces:
        new = TraceHead(id=str(uuid4()), created_at=next(times), trace_version=trace.trace_version)
        added.append(new)
        rows.append(new_row(new.id, new.created_at, trace))
        del trace
    with store.writing(shared=True) as writer:
        writer.add(rows)
    return added
