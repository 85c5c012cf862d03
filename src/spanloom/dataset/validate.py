"""Is what lies on the disk what it must be? Every file, token and label of a dataset, whatever its family.

In: a dataset root, its family, its source where it is at hand. Out: a `Report`. Reads the arrays through Megatron's own
IndexedDataset. What must hold in a document is the family's to say (`check_shard`, `check_source`); no code there
rendered, packed, shifted or wrote what it checks. Writes nothing.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset import manifest
from spanloom.dataset.family import DatasetFamily, Digests, OpenedShard, SourceCheck
from spanloom.dataset.inventory import AT_ONCE, check_inventory
from spanloom.dataset.layout import array_prefixes, rows_file
from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.rows import RowsReader
from spanloom.errors import ArtifactError
from spanloom.findings import Finding, Report
from spanloom.megatron.check import open_parallel
from spanloom.megatron.official import require_megatron
from spanloom.split import VALID
from spanloom.workers import OnProgress

TOKENS_AT_ONCE = 1 << 20
"""Tokens of a shard that a family looks at together."""

T = TypeVar("T")


def validate_dataset(
    root: Path,
    family: DatasetFamily,
    *,
    source: Path | None = None,
    deep: int = 0,
    tokenizer: Path | None = None,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
) -> Report:
    """Checks a dataset, pending or promoted, and returns what was found. Writes nothing: a read-only root will do.

    `source`: what it was built from; `deep` rows of it, or the first `deep` blocks of each shard, are made again and
    compared token by token. `on_progress`: sequences checked so far, and those there are.
    Hashes files and checks shards in up to `workers` threads (None: one for each core), never in more than `AT_ONCE`.
    Raises ManifestError when there is no manifest to hold the files against.
    """
    require_megatron()
    content = manifest.read_any(root).content
    report, beyond_files = Report(), Report()
    report.ran("inventory", sum(1 for _ in content.listed_files()))
    with ThreadPoolExecutor(min(workers or os.cpu_count() or 1, AT_ONCE)) as threads:
        inventory = check_inventory(root, content, threads)
        run = _Run(threads, content, on_progress)
        try:
            readable = _check_shards(beyond_files, root, content, family, run)
            if source is not None:
                family.check_source(
                    beyond_files,
                    SourceCheck(
                        root=root,
                        content=content,
                        source=source,
                        deep=deep,
                        tokenizer=tokenizer,
                        readable=readable,
                        run=run,
                    ),
                )
            report.add(inventory)  # first: a file that is missing explains what follows from it
            for shard in content.shards:
                report.add(family.check_sums(content, shard))
            report.include(beyond_files)
        except BaseException:
            run.stopped.set()  # else leaving the block would wait for all shards
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return report


class _Run:
    """Shards checked side by side: how far they are together, and whether to go on."""

    def __init__(self, threads: Executor, content: Content, on_progress: OnProgress | None) -> None:
        self.stopped = threading.Event()
        self._threads, self._on_progress = threads, on_progress
        self._sequences = content.totals.sequences
        self._checked, self._lock = 0, threading.Lock()

    def each(self, report: Report, shards: Sequence[ShardEntry], check: Callable[[Report, ShardEntry], T]) -> list[T]:
        """What `check` returns of each shard; what it reports is added in the order of the shards."""

        def reported(shard: ShardEntry) -> tuple[Report, T]:
            own = Report()
            return own, check(own, shard)

        results = []
        for own, result in self._threads.map(reported, shards):
            report.include(own)
            results.append(result)
        return results

    def go_on(self) -> None:
        """Raises CancelledError when nobody waits for the rest."""
        if self.stopped.is_set():
            raise CancelledError

    def checked(self, sequences: int) -> None:
        """Counts sequences as checked; see `go_on`."""
        self.go_on()
        with self._lock:
            self._checked += sequences
            if self._on_progress:
                self._on_progress(self._checked, self._sequences)


def _check_shards(
    report: Report, root: Path, content: Content, family: DatasetFamily, run: _Run
) -> frozenset[tuple[str, int]]:
    """Every document of every shard and split, valid first: its ids must not turn up in train.

    Returns the splits and numbers of the shards that could be read.
    """
    report.ran("documents", 0)
    report.ran("tokens", 0)
    readable: set[tuple[str, int]] = set()
    held_out: Digests = np.empty(0, dtype=np.uint64)
    for split in sorted(content.totals.splits, key=lambda name: name != VALID):

        def check(own: Report, shard: ShardEntry, split: str = split, held_out: Digests = held_out) -> Digests | None:
            with opened_shard(own, root, content, family.ROW_COLUMNS, split, shard) as opened:
                return None if opened is None else family.check_shard(own, opened, held_out, run)

        found = run.each(report, content.shards, check)
        read = [(shard.shard, ids) for shard, ids in zip(content.shards, found, strict=True) if ids is not None]
        readable |= {(split, number) for number, _ in read}
        if split == VALID:
            held_out = np.concatenate([held_out, *(ids for _, ids in read)])
            held_out.sort()
        del found, read
    return frozenset(readable)


@contextmanager
def opened_shard(
    report: Report, root: Path, content: Content, row_columns: Sequence[str], split: str, shard: ShardEntry
) -> Iterator[OpenedShard | None]:
    """A split of one shard; None when it is empty or cannot be read. It is not kept open: Megatron maps each index.

    What is wrong around what the caller reads of it is added to the report: sequences against the manifest, rows that
    go on behind them. `row_columns`: what the row table must have beside the columns of every family.
    """
    number, counts = shard.shard, shard.splits[split]
    arrays = array_prefixes(root, split, number, content.arrays)
    datasets = open_parallel(report, arrays, split=split, shard=number) if counts.sequences else None
    table = rows_file(root, split, number)
    if datasets is None or not table.is_file():  # a missing file is in the report already
        yield None
        return
    if datasets.lengths.size != counts.sequences:
        message = f"{datasets.lengths.size} sequences, the manifest says {counts.sequences}"
        report.add([Finding(check="manifest", message=message, split=split, shard=number)])

    def fault(message: str) -> None:
        report.add([Finding(check="rows", message=message, split=split, shard=number)])

    try:
        rows = RowsReader(table)
    except ArtifactError as unreadable:
        fault(unreadable.what)
        yield None
        return
    spans = [f"{name}_tokens" for name in content.span_names]
    if missing := [name for name in ("sequence", *row_columns, "tokens", *spans) if name not in rows.names]:
        fault(f"rows.parquet has no column {', '.join(missing)}")
        yield None
        return
    try:
        yield OpenedShard(root=root, content=content, split=split, shard=shard, datasets=datasets, rows=rows)
        if rows.take(1).num_rows:
            fault("rows.parquet goes on after the last document")
    except ArtifactError as unreadable:
        fault(unreadable.what)
    except pa.ArrowException as unreadable:  # a column of another type: all else that is read here is read by Megatron
        fault(f"rows.parquet cannot be read: {unreadable}")


def check_span_tokens(report: Report, opened: OpenedShard, totals: npt.NDArray[np.int64]) -> None:
    """The tokens of each span that were counted in a split of a shard, int64 [S], against the manifest."""
    said = list(opened.shard.splits[opened.split].span_tokens.values())
    if totals.tolist() != said:
        message = f"tokens per span are {totals.tolist()}, the manifest says {said}"
        report.add([opened.finding("manifest", message)])
