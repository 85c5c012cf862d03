"""Step ingest-traces: records at a place → a new store in a file.

In: all inputs of `spanloom traces ingest`, in any known form; a source name. Out: a new SQLite store, one file.
"""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from spanloom.errors import ConflictError
from spanloom.families.traces.errors import StoreError
from spanloom.families.traces.forms.mapped import mapped_form
from spanloom.families.traces.places import TraceFile, trace_files
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.ingest import SKIPPED_KEPT, Ids, Ingested, ingest_file
from spanloom.families.traces.store.opening import file_url, open_store
from spanloom.families.traces.store.source import FormChoice
from spanloom.storage import discard, publish, sha256_file, temporary_beside
from spanloom.storage.scratch import scratch_for


def _ingest(
    files: Sequence[TraceFile], store: Path, created_at: str | None, step_limit: int | None, **options: Any
) -> list[tuple[str, Ingested]]:
    """Creates the store from all files; returns the name and the result of each. `store` appears when it is complete.

    `created_at`: ISO 8601, of the first row; each file continues after the previous one. With it the same input gives
    the same bytes, so a store that a killed run has finished counts as written. `step_limit`: characters per step;
    None for the store's default. `options`: those of `ingest_file`. Raises ConflictError if `store` is another file.
    """
    if created_at is None and store.exists():
        raise ConflictError(
            "there is a file in the store's place already", where=str(store), remedy="give another place"
        )
    temporary = temporary_beside(store)
    try:
        opened = open_store(file_url(temporary), create=True)
        try:
            if step_limit is not None:
                opened.remember_step_limit(step_limit)
            ingested_files = []
            began = timestamps.now() if created_at is None else timestamps.given(created_at)
            for file in files:
                ingested = ingest_file(opened, file.path, called=file.called, created_at=began, **options)
                began = timestamps.later(began, ingested.ingested_count + ingested.skipped_existing)
                ingested_files.append((file.called, ingested))
        finally:
            opened.close()
        _merge_log(temporary)
        publish(temporary, store, sha256_file(temporary))
    finally:
        for left in temporary.parent.glob(f"{temporary.name}-*"):
            left.unlink()
        discard(temporary)
    return ingested_files


def _merge_log(store: Path) -> None:
    """Merges SQLite's write-ahead log into the file. Closing the store also does it, but hides failures."""
    try:
        with closing(sqlite3.connect(store)) as connection:
            ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.OperationalError as fault:
        raise StoreError(f"the store cannot be written: {fault}", where=str(store), remedy="run again") from None
    assert not busy, "the file has a name of its own, so no other process has it open"


def run(
    *,
    source: str,
    store: str,
    source_name: str,
    ids: Ids = "content",
    strict: bool = False,
    created_at: str | None = None,
    maps: Sequence[str] = (),
    max_step_characters: int | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over places. `maps`: MEANING=KEY of `mapped_form`; none for the form of each file's first record."""
    choice = FormChoice(form=mapped_form(maps) if maps else None, recognise=True)
    with scratch_for("ingest-traces", [source, store], scratch) as staging:
        target = staging.path(store)
        if target in staging.stands_for:
            target.unlink(missing_ok=True)  # left by a killed run
        options: dict[str, Any] = {"source_name": source_name, "ids": ids, "strict": strict, "choice": choice}
        unread: list[str] = []
        with trace_files(staging, [source], unread) as files:
            made = _ingest(files, target, created_at, max_step_characters, **options)
        staging.publish_file(store)
    ingested_files = [(_below(called, source), ingested) for called, ingested in made]
    left_out: Counter[str] = Counter()
    for _, ingested in ingested_files:
        left_out += ingested.left_out
    skipped = [{"file": name, **line} for name, ingested in ingested_files for line in ingested.skipped]
    return {
        "files": {name: ingested.ingested_count for name, ingested in ingested_files},
        "ingested_count": sum(ingested.ingested_count for _, ingested in ingested_files),
        "skipped_count": sum(ingested.skipped_count for _, ingested in ingested_files),
        "skipped_existing": sum(ingested.skipped_existing for _, ingested in ingested_files),
        "skipped": skipped[:SKIPPED_KEPT],
        "left_out": dict(sorted(left_out.items())),
        **({"not_read": unread} if unread else {}),
    }


def _below(called: str, source: str) -> str:
    """The path of a file relative to the folder `source`; its name if `source` is the file."""
    return Path(called).name if called == source else called.removeprefix(source.rstrip("/") + "/")


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {name: result[name] for name in ("ingested_count", "skipped_count", "skipped_existing")}
    return {"store": counts, "metrics": counts}
