"""JSON Lines → the store: each line a trace, one transaction a file, all of it or nothing.

In: a local file, a source name. Out: rows, ids in the order of the lines, and which lines were not taken, with reasons.

An id follows from the content by default: of equal traces in one file the second gets another id than the first, and a
trace that stands in the store already is counted and not stored again. So a file ingested twice changes nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from spanloom.errors import SourceError
from spanloom.families.traces.errors import TraceError
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.database import PAGE_ROWS, Store, TraceHead, Writer, new_row
from spanloom.families.traces.trace import Trace, canonical_payload, check_trace, content_id
from spanloom.records.json_lines import json_value, lines
from spanloom.workers import OnProgress

Ids = Literal["content", "random"]

SKIPPED_KEPT = 100
"""Lines that were not taken and are told one by one; all are counted."""


@dataclass(kw_only=True)
class Ingested:
    """What became of a file. `trace_ids`: those stored now, in the order of the lines; `skipped`: line and reason."""

    trace_ids: list[str] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    skipped_count: int = 0
    skipped_existing: int = 0

    @property
    def ingested_count(self) -> int:
        """How many traces were stored."""
        return len(self.trace_ids)

    def skip(self, line: int, reason: str) -> None:
        """Counts a line that was not taken."""
        self.skipped_count += 1
        if len(self.skipped) < SKIPPED_KEPT:
            self.skipped.append({"line": line, "reason": reason})

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"ingested_count": self.ingested_count, **vars(self)}


def ingest_file(
    store: Store,
    path: Path,
    *,
    source_name: str,
    ids: Ids = "content",
    strict: bool = False,
    created_at: str | None = None,
    called: str | None = None,
    on_progress: OnProgress | None = None,
) -> Ingested:
    """Stores the traces of a JSON Lines file. `created_at`: the store's text of the first row's time, None for now.

    `called`: the file as the user named it, for messages and for `meta.ingest_source_file`. `on_progress` is told
    bytes. Raises TraceError where no line is valid, or where one is not and `strict` is asked for, SourceError where
    the file cannot be read or unpacked to its end; nothing is stored then.
    """
    done = Ingested()
    called = called or str(path)
    times = timestamps.series(created_at or timestamps.now())
    size = path.stat().st_size if path.exists() else 0
    repeats: Counter[bytes] = Counter()
    held: list[dict[str, Any]] = []
    valid = read = 0
    with store.writing() as writer:
        for number, line in enumerate(_lines(path, called), start=1):
            read += len(line) + 1
            if not line.strip():
                continue
            try:
                trace = _trace_of(line, source_name, Path(called).name)
            except ValueError as fault:
                if strict:
                    raise TraceError(
                        f"line {number} is no trace: {fault}",
                        where=called,
                        remedy="fix it, or ingest without --strict, which skips such lines and counts them",
                    ) from None
                done.skip(number, str(fault))
                continue
            trace_id = _content_id(trace, repeats) if ids == "content" else str(uuid4())
            held.append(new_row(trace_id, next(times), trace))
            valid += 1
            if len(held) == PAGE_ROWS:
                _store(writer, held, done)
                held = []
                if on_progress:
                    on_progress(min(read, size), size)
        if not valid:
            raise TraceError(
                f"No valid traces found in {called}",
                where="line {line}: {reason}".format(**done.skipped[0]) if done.skipped else None,
                remedy="give JSON Lines with a trace in each line: `spanloom traces sample --out FILE` writes some",
            )
        _store(writer, held, done)
    if on_progress:
        on_progress(size, size)
    return done


def _lines(path: Path, called: str) -> Iterator[bytes]:
    try:
        for _, line in lines(path):
            yield line
    except OSError as fault:
        raise SourceError(
            f"the file cannot be read: {fault.strerror or fault}", where=called, remedy="see to the file and its disk"
        ) from None


def _trace_of(line: bytes, source_name: str, file_name: str) -> Trace:
    try:
        value = json_value(line)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError as fault:  # orjson's and the standard library's error, and that of bytes which are no UTF-8
        raise ValueError(f"not JSON: {fault}") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    meta = value.setdefault("meta", {})
    if not isinstance(meta, dict):
        raise ValueError("meta: not an object")
    meta["source"] = source_name
    meta["ingest_source_file"] = file_name
    return check_trace(value)


def _content_id(trace: Trace, repeats: Counter[bytes]) -> str:
    canonical = canonical_payload(trace.payload)
    first = content_id(canonical, 0)
    repeat = repeats[first.bytes]
    repeats[first.bytes] += 1
    return str(first if not repeat else content_id(canonical, repeat))


def _store(writer: Writer, rows: list[dict[str, Any]], done: Ingested) -> None:
    if not rows:
        return
    existing = writer.existing([row["id"] for row in rows])
    new = [row for row in rows if row["id"] not in existing]
    writer.add(new)
    done.trace_ids.extend(row["id"] for row in new)
    done.skipped_existing += len(rows) - len(new)


def add_traces(store: Store, traces: Iterable[Trace]) -> list[TraceHead]:
    """Stores traces with random ids, all or none. The k-th is k microseconds younger than the first.

    Of each trace nothing but the text that is stored is kept, so that an iterator of traces may make them one by one.
    """
    times = timestamps.series(timestamps.now())
    added: list[TraceHead] = []
    rows: list[dict[str, Any]] = []
    for trace in traces:
        new = TraceHead(id=str(uuid4()), created_at=next(times), trace_version=trace.trace_version)
        added.append(new)
        rows.append(new_row(new.id, new.created_at, trace))
        del trace
    with store.writing(shared=True) as writer:
        writer.add(rows)
    return added
