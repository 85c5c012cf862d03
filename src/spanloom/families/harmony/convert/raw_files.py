"""Finds the raw files with the rows of one shard, from the footers of the files alone.

In: raw SYNTH at a place, the number of a shard. Out: the row groups to read, with only their files staged: if an object
has no row of the shard, only its footer is read.

Shard `i` of `N` holds the source rows `r` with `r * N // rows == i`, as in `Conversion.shard_of`. 10 rows
in groups of 4, 4 and 2, over 2 shards: shard 0 has rows 0 to 4, from groups 0 and 1; shard 1 rows 5 to 9, from 1 and 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.errors import SourceError, SpanloomError
from spanloom.families.harmony.convert.synth import RawFile, check_raw_file, find_raw_files, rows_of_groups
from spanloom.records.parquet import one_line
from spanloom.records.staging import objects_of_records
from spanloom.storage.scratch import Scratch
from spanloom.storage.staging import Download, read_range, stage_files
from spanloom.storage.stores.objects import StoredObject
from spanloom.storage.transfer import Transfers
from spanloom.storage.uri import is_uri, parse_uri

TAIL = 64 << 10
"""Bytes first read from the end of an object: most footers fit."""

MAGIC = b"PAR1"


@dataclass(frozen=True, kw_only=True)
class RawFooter:
    """The footer of one raw file, and `version`, which changes when the file is written."""

    name: str
    bytes: int
    version: str
    group_rows: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(self.group_rows)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Consecutive rows of one raw file: `rows` rows of the row groups `groups`, after the first `skip` rows."""

    file: int
    groups: tuple[int, ...]
    skip: int
    rows: int


class RawPlace:
    """Raw SYNTH at a place. `footers`: those of its files, sorted by name, which is also the order of the rows."""

    def __init__(self, scratch: Scratch, raw: str, *, with_seed_text: bool) -> None:
        self._raw, self._path, self._with_seed_text = raw, scratch.path(raw), with_seed_text
        self._files: list[RawFile] | None = None
        self._objects: dict[str, StoredObject] = {}
        if is_uri(raw):
            self._objects = dict(sorted(objects_of_records(raw, (".parquet",)).items()))
            self.footers = _remote_footers(self._objects)
        else:
            self._files = find_raw_files(self._path, with_seed_text=with_seed_text)
            self.footers = [
                RawFooter(
                    name=file.name,
                    bytes=file.state.bytes,
                    version=str(file.state.mtime_ns),
                    group_rows=file.group_rows,
                )
                for file in self._files
            ]

    def files(self, wanted: Sequence[int]) -> dict[int, RawFile]:
        """The files with these numbers, their columns checked; objects are staged.

        Raises SourceError for a file that is not raw SYNTH, StorageError for an object that cannot be fetched.
        """
        if self._files is not None:
            return {number: self._files[number] for number in wanted}
        names = {number: self.footers[number].name for number in wanted}
        itself = parse_uri(self._raw)  # one object, or the folder of all objects
        paths = {
            number: self._path if self._objects[name].uri == itself else self._path / name
            for number, name in names.items()
        }
        stage_files(
            [
                Download(uri=self._objects[name].uri, path=paths[number], bytes=self.footers[number].bytes)
                for number, name in names.items()
            ]
        )
        return {
            number: check_raw_file(paths[number], name, with_seed_text=self._with_seed_text)
            for number, name in names.items()
        }


def runs_of_shard(footers: Sequence[RawFooter], shard: int, shards: int) -> list[Run]:
    """The rows of one shard, in order, as runs of row groups; the first and last group may be used only in part.

    Raises SpanloomError for an invalid shard number, and for more shards than non-empty row groups: then several shards
    would read the same group, each for a few of its rows.
    """
    if not 0 <= shard < shards:
        raise SpanloomError(f"there is no shard {shard} of {shards}", remedy=f"shards count from 0 to {shards - 1}")
    groups = sum(rows > 0 for footer in footers for rows in footer.group_rows)
    if shards > groups:
        raise SpanloomError(
            f"{shards} shards need as many row groups, and the raw Parquet files have {groups}",
            remedy=f"give --shards {groups} or fewer, or write the raw files again with more row groups"
            " (pyarrow.parquet.write_table: row_group_size=ROWS)",
        )
    total = sum(footer.rows for footer in footers)
    first, last = -(-shard * total // shards), -(-(shard + 1) * total // shards)
    runs, before = [], 0
    for number, footer in enumerate(footers):
        ends = list(accumulate(footer.group_rows, initial=before))[1:]
        starts = [before, *ends][:-1]
        held = [
            group
            for group, (start, end) in enumerate(zip(starts, ends, strict=True))
            if start < end and start < last and end > first
        ]
        if held:
            begin, end = max(first, starts[held[0]]), min(last, ends[held[-1]])
            runs.append(Run(file=number, groups=tuple(held), skip=begin - starts[held[0]], rows=end - begin))
        before += footer.rows
    return runs


def _remote_footers(objects: dict[str, StoredObject]) -> list[RawFooter]:
    footers: dict[str, RawFooter] = {}
    reading = Transfers()

    def read(name: str, stored: StoredObject) -> None:
        footers[name] = RawFooter(
            name=name, bytes=stored.bytes, version=stored.version, group_rows=_group_rows(stored, reading)
        )

    reading.run([partial(read, name, stored) for name, stored in objects.items()])
    return [footers[name] for name in objects]


def _group_rows(stored: StoredObject, reading: Transfers) -> tuple[int, ...]:
    """The rows of each row group. A Parquet object ends with its footer, the footer's length in 4 bytes, and `PAR1`."""
    tail = read_range(stored, max(stored.bytes - TAIL, 0), stored.bytes, reading.stop)
    footer = int.from_bytes(tail[-8:-4], "little") + 8
    if tail[-4:] != MAGIC or footer > stored.bytes:
        raise SourceError("not a Parquet file (truncated?)", where=str(stored.uri), remedy="upload it again")
    if footer > len(tail):
        tail = read_range(stored, stored.bytes - footer, stored.bytes, reading.stop)
    try:
        return rows_of_groups(pq.read_metadata(pa.BufferReader(MAGIC + tail[-footer:])))
    except (pa.ArrowException, OSError) as fault:
        what = f"the footer of the Parquet file cannot be read: {one_line(fault)}"
        raise SourceError(what, where=str(stored.uri), remedy="upload it again") from None
