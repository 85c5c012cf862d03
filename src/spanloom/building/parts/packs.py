"""The parts of a rendered shard in a few large files: packs of about 256 MiB, and the ids of the shard in one file.

In: the parts that workers wrote, in order. Out: `rendered_00000.tar` and so on, each an uncompressed tar of whole
parts, and `ids.parquet`. The same parts give the same bytes, so a pack that is written twice is the same file.

    rendered_00000.tar   rendered/part_00000.json · rendered/part_00000.parquet · ids/part_00000.parquet · and so on
    ids.parquet          the ids of all parts, in row groups of whole batches with at least 65,536 documents, and the
                         digest of each, so that the process that searches for repeated ids need not compute them
"""

import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.building.parts.stored import OpenPart, open_part, part_name, read_ids, row_groups
from spanloom.errors import ArtifactError
from spanloom.records.parquet import abandon
from spanloom.split import id_digests
from spanloom.storage import discard, fsync_file, temporary_beside

PACK_BYTES = 256 << 20
MOST_PACKS = 128
"""Maximum packs of a shard if its rendered parts are as large as its source; it keeps lists of packs short."""
IDS_NAME = "ids.parquet"
IDS_ROWS = 65_536
DIGEST = "digest"
"""The column of `ids.parquet` that decides the split (`split.id_digests`), uint64."""
_MEMBER = re.compile(r"(rendered/part_\d{5}\.(json|parquet|rejects\.jsonl)|ids/part_\d{5}\.parquet)")


def pack_name(number: int) -> str:
    """`rendered_00003.tar`"""
    return f"rendered_{number:05d}.tar"


def pack_bytes(source_bytes: int) -> int:
    """The size in bytes at which a pack is closed, for a source shard of this size: 256 MiB up to 32 GiB of source."""
    return max(PACK_BYTES, source_bytes // MOST_PACKS)


def members(part: dict[str, Any]) -> list[str]:
    """The files of a part, from its summary."""
    name = part_name(part["part"])
    rejects = [f"rendered/{name}.rejects.jsonl"] if part["rejected"] else []
    return [f"rendered/{name}.json", f"rendered/{name}.parquet", f"ids/{name}.parquet", *rejects]


def write_pack(folder: Path, names: Iterable[str], pack: Path) -> None:
    """Writes the files `names` below `folder` as the tar `pack`, with fsync, and without times and owners of files."""
    temporary = temporary_beside(pack)
    try:
        with tarfile.open(temporary, "w", format=tarfile.GNU_FORMAT) as tar:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size = (folder / name).stat().st_size
                with (folder / name).open("rb") as stream:
                    tar.addfile(member, stream)
        fsync_file(temporary)
        temporary.replace(pack)
    finally:
        discard(temporary)


def unpack(pack: Path, folder: Path) -> list[int]:
    """Extracts the files of a pack below `folder`. Returns the numbers of its parts, in order."""
    with _opened(pack) as tar:
        members = tar.getmembers()
        for member in members:
            _check_member(member, pack)
            path = folder / member.name
            path.parent.mkdir(exist_ok=True)
            with _stream(tar, member.name, pack) as stream, path.open("wb") as file:
                shutil.copyfileobj(stream, file)
    return [int(match[1]) for member in members if (match := re.fullmatch(r"rendered/part_(\d{5})\.json", member.name))]


def read_pack(pack: Path, parts: Sequence[dict[str, Any]]) -> Iterator[OpenPart]:
    """The parts of a pack, read without extracting them."""
    with _opened(pack) as tar:
        for part in parts:
            files = dict(zip(("json", "documents", "ids", "rejects"), members(part), strict=False))
            streams = {kind: _stream(tar, name, pack) for kind, name in files.items() if kind != "json"}
            rejects = streams.pop("rejects").read() if "rejects" in streams else b""
            with pq.ParquetFile(streams["documents"]) as documents, pq.ParquetFile(streams["ids"]) as ids:
                yield OpenPart(documents=row_groups(documents), ids=row_groups(ids), rejects=rejects)


def read_ids_file(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The ids of a shard in batches, from its `ids.parquet`. `columns`: the columns to read; all if one is missing."""
    with open_part(path) as file:
        yield from row_groups(file, columns if {*(columns or ())} <= {*file.schema_arrow.names} else None)


def _stream(tar: tarfile.TarFile, name: str, pack: Path) -> Any:
    try:
        return tar.extractfile(name)
    except KeyError:
        raise ArtifactError(f"the pack has no {name}", where=str(pack), remedy=_AGAIN) from None


def _opened(pack: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(pack, "r:")
    except tarfile.TarError as fault:
        raise ArtifactError(
            f"a pack of rendered parts cannot be read: {fault}", where=str(pack), remedy=_AGAIN
        ) from None


def _check_member(member: tarfile.TarInfo, pack: Path) -> None:
    if not (member.isreg() and _MEMBER.fullmatch(member.name)):
        raise ArtifactError(
            f"the pack holds {member.name!r}, which is no file of a part", where=str(pack), remedy=_AGAIN
        )


_AGAIN = "clear the work place (spanloom work clear), and run render-shard again"


class IdsWriter:
    """Joins the ids of parts into one file. Memory holds one row group. `by`: the column that decides the split."""

    def __init__(self, path: Path, schema: pa.Schema, by: str) -> None:
        self._path, self._temporary, self._by = path, temporary_beside(path), by
        self._schema = schema.append(pa.field(DIGEST, pa.uint64(), nullable=False))
        options = {"compression": "zstd", "write_statistics": False, "use_dictionary": schema.names}
        self._writer = pq.ParquetWriter(self._temporary, self._schema, **options)
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def append(self, ids: Path, part: dict[str, Any]) -> None:
        """Adds the ids of a part that is in the folder `ids`."""
        for batch in read_ids(ids, [part]):
            digests = pa.array(id_digests(batch.column(self._by).to_pylist()))
            self._waiting.append(pa.RecordBatch.from_arrays([*batch.columns, digests], schema=self._schema))
            self._rows += batch.num_rows
            if self._rows >= IDS_ROWS:
                self._flush()

    def close(self) -> Path:
        """Completes the file. Returns its path."""
        if self._rows:
            self._flush()
        self._writer.close()
        fsync_file(self._temporary)
        self._temporary.replace(self._path)
        return self._path

    def _flush(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._rows)
        self._waiting, self._rows = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the file if it was not closed."""
        abandon(self._writer)
        discard(self._temporary)
