"""Reads the rows of a source's shard: all in batches, or some of them whole; and draws a sample of them.

In: a shard of a source, row numbers. Out: `SourceRow`s, batches, row numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.conversations.source.folder import SourceShard, group_rows, open_source_shard, source_batches
from spanloom.conversations.source.manifest import ANY_MODEL_V1
from spanloom.families.harmony.contract.profile import Profile, profile_of_source
from spanloom.families.harmony.verify.any_model import harmony_or_refusal
from spanloom.families.harmony.verify.rules import Judgement
from spanloom.records.parquet import BATCH_ROWS, column_values

GROUPS_READ, ROWS_DRAWN = 4, 256
"""Minimum of row groups read for the sample of a shard (a row can only be read with its whole group), and minimum of
rows drawn from them; the sample is evenly spaced among these."""


def small_columns(profile: Profile) -> tuple[str, ...]:
    """The columns of a source without the conversations."""
    return profile.source.id_column, "metadata_json", *profile.source.metadata_columns


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """One row of the source. `undecodable`: a column other than `messages_json` is not UTF-8.

    `messages_json`: in Harmony's form. `unheld`: why a conversation for any model cannot be converted to that form.
    """

    row: int
    messages_json: bytes | None
    metadata_json: str | None
    id: str | None
    undecodable: bool
    unheld: Judgement | None = None


def sampled_rows(shard: SourceShard, rows_read: int, count: int) -> list[int]:
    """Draws `count` of the first `rows_read` rows of a shard, in order; fewer if the row groups read hold fewer.

    A larger `count` reads more groups; from `rows_read` on all rows are returned.
    """
    if count >= rows_read:
        return list(range(rows_read))
    drawn = max(ROWS_DRAWN, count)
    sizes = group_rows(shard)
    firsts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    usable = np.flatnonzero((firsts < rows_read) & (np.array(sizes, dtype=np.int64) > 0))
    random = np.random.default_rng([shard.index, rows_read, drawn])
    needed = max(GROUPS_READ, -(-count * usable.size // rows_read))
    groups = np.sort(random.choice(usable, size=min(needed, usable.size), replace=False))
    rows: list[int] = []
    for number, group in enumerate(groups.tolist()):
        share = drawn // groups.size + (number < drawn % groups.size)
        available = min(sizes[group], rows_read - int(firsts[group]))
        chosen = np.sort(random.choice(available, size=min(share, available), replace=False)) + firsts[group]
        rows += chosen.tolist()
    spread = np.linspace(0, len(rows) - 1, num=min(count, len(rows))).round().astype(int)
    return [rows[at] for at in spread.tolist()]


def whole_rows(shard: SourceShard, wanted: Iterable[int]) -> Iterator[SourceRow]:
    """Reads the rows with these ascending numbers. Skips row groups without one of them."""
    numbers = iter(wanted)
    row = next(numbers, None)
    profile = profile_of_source(shard.format)
    with open_source_shard(shard) as file:
        first = 0
        for group in range(file.metadata.num_row_groups):
            end = first + file.metadata.row_group(group).num_rows
            if row is None:
                return
            if row < end:
                for at, batch in read_batches(
                    file, shard, ("messages_json", *small_columns(profile)), BATCH_ROWS, [group]
                ):
                    while row is not None and row < first + at + batch.num_rows:
                        yield _source_row(row, batch.slice(row - first - at, 1), profile)
                        row = next(numbers, None)
                    if row is None or row >= end:
                        break
            first = end


def read_batches(
    file: pq.ParquetFile, shard: SourceShard, columns: Sequence[str], rows: int, groups: Sequence[int] | None = None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields each batch with the number of its first row, counted from the first group. Raises SourceError."""
    names = [name for name in columns if name in file.schema_arrow.names]
    at = 0
    for batch in source_batches(file, shard, groups, names, batch_rows=rows):
        yield at, batch
        at += batch.num_rows


def _source_row(row: int, batch: pa.RecordBatch, profile: Profile) -> SourceRow:
    cells, torn = cells_of(batch, profile)
    messages_json, unheld = batch.column("messages_json").cast(pa.large_binary())[0].as_py(), None
    if profile.source.schema_version == ANY_MODEL_V1:
        messages_json, unheld = harmony_or_refusal(messages_json)
    return SourceRow(
        row=row,
        messages_json=messages_json,
        metadata_json=cells["metadata_json"][0],
        id=cells[profile.source.id_column][0],
        undecodable=bool(torn),
        unheld=unheld,
    )


def cells_of(batch: pa.RecordBatch, profile: Profile) -> tuple[dict[str, list[str | None]], set[int]]:
    """The small columns, with None for a missing column; and the rows with a value that is not UTF-8."""
    torn: set[int] = set()
    small = small_columns(profile)
    cells: dict[str, list[str | None]] = {name: [None] * batch.num_rows for name in small}
    for name in set(small) & set(batch.schema.names):
        cells[name] = column_values(batch.column(name), lambda index, _: torn.add(index))
    return cells, torn
