"""A file of records → the store: one transaction per file, all or nothing.

In: a local file, a source name. Out: rows, ids in the order of the records, and the rejected records with reasons.

By default an id is derived from the content. Equal traces in one file get different ids; a trace that is already in the
store is counted, not stored again. So ingesting a file twice changes nothing.
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
"""Limit of rejected lines that are listed; all are counted."""

NOT_VALID = "not a valid trace"
"""The reason for records that break a rule of `Trace` or are not JSON."""


@dataclass(kw_only=True)
class Ingested:
    """The result for one file. `trace_ids`: new in the store, in the order of the lines; `skipped`: line and reason.

    `left_out`: the number of rejected records, or parts of them, by reason.
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
        """Counts a rejected line, or a rejected part of it."""
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
    """Stores the traces of a file. `created_at`: the first row's time, as `timestamps.stored` returns it; None for now.

    `choice`: the accepted forms of records. `called`: the file as the user named it, for messages and for
    `meta.ingest_source_file`. `on_progress` gets bytes. Raises TraceError if no record gives a valid trace, or, with
    `strict`, if one does not; SourceError if the file cannot be read or unpacked completely. In both cases nothing is
    stored.
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
    """Writes the origin of a trace into `meta`. Raises ValueError for a value that cannot hold metadata."""
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
    # Ids of one file differ: in a store that was empty, none can exist.
    existing = writer.existing([row[0] for row in rows]) if looked_up else None
    new = [row for row in rows if row[0] not in existing] if existing else rows
    writer.add(new)
    done.trace_ids.extend(row[0] for row in new)
    done.skipped_existing += len(rows) - len(new)


def add_traces(store: Store, traces: Iterable[Trace]) -> list[TraceHead]:
    """Stores traces with random ids, all or none. The k-th is k microseconds younger than the first.

    Only the stored text of each trace is kept in memory, so `traces` may be a lazy iterator.
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
