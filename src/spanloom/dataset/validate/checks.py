"""The checks of a dataset: files and manifest, each document, all documents together, the source.

In: a dataset root, its family, a run of checks. Out: a `Report`. The family defines the rules of a document
(`check_shard`, `check_source`), in code that shares nothing with rendering, packing, shifting and writing.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.family import CheckRun, DatasetFamily, OpenedShard, SourceCheck, WholeCheck
from spanloom.dataset.manifest import Content, ShardEntry, SplitCounts
from spanloom.dataset.root.layout import array_prefixes, rows_file
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.rows.table import RowsReader, rows_schema
from spanloom.dataset.validate.content import check_shape, check_sums
from spanloom.dataset.validate.copies import CountedRun
from spanloom.dataset.validate.disk_documents import DiskDocuments, digests_of
from spanloom.errors import ArtifactError
from spanloom.findings import Finding, Report
from spanloom.megatron.check import open_parallel
from spanloom.megatron.readers import MEGATRON, OpenIndexed, Reader, open_with
from spanloom.split import VALID

TOKENS_AT_ONCE = 1 << 20
"""Tokens of a shard that a family checks at once."""

Documents = TypeVar("Documents", bound=DiskDocuments)


@dataclass(frozen=True, kw_only=True)
class GivenSource:
    """The source to check a dataset against; see `SourceCheck`."""

    place: Path
    deep: int = 0
    tokenizer: Path | None = None
    at_hand: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetCheck:
    """What is checked. `source`: None if it is not given; `reader`: of arrays; `scratch`: folder for digests that
    exceed the memory limit."""

    root: Path
    content: Content
    family: DatasetFamily
    source: GivenSource | None = None
    reader: Reader = MEGATRON
    scratch: Path | None = None


def joined_checks(
    check: DatasetCheck, run: CheckRun, digests: DigestRuns, contents: DigestRuns, inventory: Iterable[Finding]
) -> Report:
    """The checks of files, manifest, shards and source as one report. `inventory`: findings about the files; `digests`:
    of ids; `contents`: of documents' tokens. Both are complete already, or filled during the run."""
    content, family = check.content, check.family
    report, beyond_files = Report(reader=check.reader), Report()
    report.ran("inventory", sum(1 for _ in content.listed_files()))
    # A dataset without the shape of its family cannot be read.
    shape = list(check_shape(content, family))
    if not shape:
        check_beyond_files(beyond_files, check, run, digests)
    report.add(inventory)  # first: a missing file explains later findings
    report.add(shape)
    if not shape:
        report.add(check_sums(content))
        report.add(family.check_content(content))
        for shard in content.shards:
            report.add(family.check_sums(content, shard))
        report.include(beyond_files)
        if beyond_files.checked["documents"] == content.totals.sequences:
            report.duplicate_documents = contents.surplus()
    return report


def check_beyond_files(report: Report, check: DatasetCheck, run: CheckRun, digests: DigestRuns) -> None:
    """Checks each document, then all documents together, then the dataset against the source if it is given."""
    opening = open_with(check.reader)
    readable = _check_shards(report, check, run, digests, opening)
    whole = WholeCheck(root=check.root, content=check.content, readable=readable, run=run, open_with=opening)
    check.family.check_whole(report, whole, digests)
    if (source := check.source) is not None:
        held_against = SourceCheck(
            whole=whole, source=source.place, deep=source.deep, tokenizer=source.tokenizer, at_hand=source.at_hand
        )
        check.family.check_source(report, held_against)


def _check_shards(
    report: Report, check: DatasetCheck, run: CheckRun, digests: DigestRuns, opening: OpenIndexed
) -> frozenset[tuple[str, int]]:
    """Checks every document of every shard and split, valid first. Adds the digests of ids to `digests`.

    Returns (split, shard number) of the shards that could be read.
    """
    content = check.content
    report.ran("documents", 0)
    report.ran("tokens", 0)
    readable: set[tuple[str, int]] = set()
    for split in sorted(content.totals.splits, key=lambda name: name != VALID):

        def check_shard(own: Report, shard: ShardEntry, split: str = split) -> bool:
            row_schema = check.family.row_schema(content)
            with opened_shard(own, check.root, content, row_schema, split, shard, opening) as opened:
                if opened is None:
                    return False
                counted = CountedRun(run)
                digests.add(check.family.check_shard(own, opened, counted))
                own.add(counted.copies.findings(split, shard.shard))
                return True

        of_shards = run.each(report, content.shards, check_shard)
        readable |= {(split, shard.shard) for shard, read in zip(content.shards, of_shards, strict=True) if read}
    return frozenset(readable)


@contextmanager
def opened_shard(
    report: Report,
    root: Path,
    content: Content,
    row_schema: pa.Schema,
    split: str,
    shard: ShardEntry,
    open_with: OpenIndexed,
) -> Iterator[OpenedShard | None]:
    """A split of one shard; None if it is empty or cannot be read. Use it only in the block: Megatron maps each index.

    Also checks the split as a whole, and reports findings: the counts of its lengths against the manifest, the columns
    of the row table, rows after the last document. `row_schema`: the family's own columns of the row table.
    """
    number, counts = shard.shard, shard.splits[split]
    arrays = array_prefixes(root, split, number, content.arrays)
    datasets = None
    if counts.sequences:
        datasets = open_parallel(report, arrays, split=split, shard=number, open_with=open_with)
    table = rows_file(root, split, number)
    if datasets is None or not table.is_file():  # a missing file is already reported
        yield None
        return
    report.add(
        Finding(check="manifest", message=message, split=split, shard=number)
        for message in _wrong_counts(counts, datasets.lengths)
    )

    def fault(message: str) -> None:
        report.wrong("rows", message, split=split, shard=number)

    try:
        rows = RowsReader(table)
        wrong = _wrong_columns(rows.schema, rows_schema(row_schema, content.span_names))
    except ArtifactError as unreadable:
        wrong = unreadable.what
    if wrong is not None:
        fault(wrong)
        yield None
        return
    try:
        yield OpenedShard(root=root, content=content, split=split, shard=shard, datasets=datasets, rows=rows)
        if rows.take(1).num_rows:
            fault("rows.parquet has rows after the last document")
    except ArtifactError as unreadable:
        fault(unreadable.what)


def _wrong_counts(counts: SplitCounts, lengths: npt.NDArray[np.int32]) -> Iterator[str]:
    """Messages for manifest counts that differ from the lengths, int32 [N], of a split of a shard."""
    if lengths.size != counts.sequences:
        yield f"{lengths.size} sequences, the manifest says {counts.sequences}"
    if (tokens := int(lengths.sum(dtype=np.int64))) != counts.tokens:
        yield f"tokens is {counts.tokens}, the sequences have {tokens}"
    if (longest := int(lengths.max(initial=0))) != counts.longest:
        yield f"longest is {counts.longest}, the longest sequence has {longest} tokens"
    for limit, count in counts.fitting.items():
        fitting = int(np.count_nonzero(lengths <= int(limit))) if limit.isascii() and limit.isdecimal() else None
        if fitting != count:
            yield f"fitting.{limit} is {count}, {'no number' if fitting is None else fitting} of the sequences fit"


def _wrong_columns(columns: pa.Schema, wanted: pa.Schema) -> str | None:
    """The fault in the columns of a row table, or None."""
    if missing := [name for name in wanted.names if name not in columns.names]:
        return f"rows.parquet has no column {', '.join(missing)}"
    if columns.names != wanted.names:
        return f"rows.parquet has the columns {', '.join(columns.names)}, not {', '.join(wanted.names)}"
    for field in wanted:
        if (kind := columns.field(field.name).type) != field.type:
            return f"rows.parquet cannot be read: {field.name} is {kind}, not {field.type}"
    return None


def take_rows(report: Report, opened: OpenedShard, first: int, count: int) -> pa.Table | None:
    """The next `count` rows, of the sequences from `first` on; None, with a finding, if rows are missing or an integer
    is null."""
    rows = opened.rows.take(count)
    if rows.num_rows != count:
        message = f"rows.parquet ends after {rows.num_rows} of these {count} sequences"
        report.add([opened.finding("rows", message, first)])
        return None
    for field in rows.schema:
        if pa.types.is_integer(field.type) and (column := rows.column(field.name)).null_count:
            at = int(np.flatnonzero(column.is_null().to_numpy())[0])
            report.add([opened.finding("rows", f"{field.name} is null", first + at)])
            return None
    return rows


def check_documents_with_ids(
    report: Report,
    opened: OpenedShard,
    run: CheckRun,
    *,
    kind: Callable[..., Documents],
    id_column: str,
    check_documents: Callable[[Documents], Iterator[Finding]],
    check_rows: Callable[[Documents, pa.Table, Digests], Iterator[Finding]],
    kept_rows: Callable[[pa.Table], npt.NDArray[np.bool_]] | None = None,
) -> Digests:
    """`check_shard` for a family whose documents have ids: checks each document, its row, its split, the tokens of the
    spans. Returns the digests of the ids, uint64 [N]; with `kept_rows`, only those where it is true, bool [N]."""
    totals = np.zeros(len(opened.content.span_names), dtype=np.int64)
    kept = [np.empty(0, dtype=np.uint64)]
    for first, lengths, arrays in opened.datasets.batches(TOKENS_AT_ONCE):
        documents = kind(split=opened.split, shard=opened.shard.shard, first=first, lengths=lengths, **arrays)
        report.ran("documents", lengths.size)
        report.ran("tokens", documents.tokens.size)
        report.add(check_documents(documents))
        totals += [np.count_nonzero(documents.spans == span) for span in range(totals.size)]
        rows = take_rows(report, opened, first, lengths.size)
        if rows is not None:
            digests = digests_of(rows.column(id_column))
            report.add(check_rows(documents, rows, digests))
            kept.append(digests if kept_rows is None else digests[kept_rows(rows)])
        run.checked(documents.tokens, lengths)
    check_span_tokens(report, opened, totals)
    return np.concatenate(kept)


def check_span_tokens(report: Report, opened: OpenedShard, totals: npt.NDArray[np.int64]) -> None:
    """Checks the counted tokens of each span in a split of a shard, int64 [S], against the manifest."""
    stated = opened.shard.splits[opened.split].span_tokens
    if dict(zip(opened.content.span_names, totals.tolist(), strict=True)) != stated:
        message = f"tokens per span are {totals.tolist()}, the manifest says {list(stated.values())}"
        report.add([opened.finding("manifest", message)])
