"""The artifacts between rendering and writing on one machine: rendered parts, and the ids that go with them.

In: token documents with their rows. Out: two directories of Parquet parts, each part with a small JSON beside it.

    rendered/  part_00000.parquet   row int64 · tokens, loss_mask, span_id: a document's int32 or uint8 items as bytes
               part_00000.json      written last: the part is complete; its counts and the sha256 of each of its files
               part_00000.rejects.jsonl   only if rows were rejected
               rendered.json        the whole shard: what it was made from and with, counts
    ids/       part_00000.parquet   one row per document: the columns of `DatasetForm.about`, such as row · synth_id
               ids.json             the sha256 of each part

All arrays are token-aligned. Memory does not grow with the size of a part: rows go to disk in row groups.
A document's items are one binary value, little-endian, not a Parquet list: lists need two levels per token, which took
longer to write and read than the tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.conversations.source.rejects import Reject
from spanloom.errors import ArtifactError
from spanloom.provenance import readable_json
from spanloom.records.parquet import abandon
from spanloom.storage import (
    discard,
    fsync_directory,
    fsync_file,
    read_json,
    sha256_file,
    temporary_beside,
    write_atomically,
)
from spanloom.supervision import TokenDocuments

RENDERED_JSON = "rendered.json"
IDS_JSON = "ids.json"

RENDERED_DTYPES: dict[str, np.dtype[Any]] = {
    "tokens": np.dtype("<i4"),
    "loss_mask": np.dtype("u1"),
    "span_id": np.dtype("u1"),
}
RENDERED_SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        *(
            pa.field(name, pa.large_binary(), nullable=False, metadata={"dtype": dtype.str})
            for name, dtype in RENDERED_DTYPES.items()
        ),
    ]
)


def part_name(part: int) -> str:
    """`part_00003`"""
    return f"part_{part:05d}"


class PartWriter:
    """Writes one part: both Parquet files and the rejects under temporary names, then their names, then the JSON."""

    def __init__(self, rendered: Path, ids: Path, part: int, about: pa.Schema) -> None:
        self._rendered, self._ids, self._name = rendered, ids, part_name(part)
        self._about = about
        self._temporaries: dict[Path, Path] = {}
        self._documents = pq.ParquetWriter(
            self._temporary(rendered / f"{self._name}.parquet"),
            RENDERED_SCHEMA,
            compression="lz4",
            use_dictionary=False,
            write_statistics=False,
        )
        try:
            self._rows = pq.ParquetWriter(
                self._temporary(ids / f"{self._name}.parquet"), self._about, compression="zstd", write_statistics=False
            )
        except BaseException:
            abandon(self._documents)
            raise
        self._rejects: list[bytes] = []

    def _temporary(self, path: Path) -> Path:
        self._temporaries[path] = temporary_beside(path)
        return self._temporaries[path]

    def write(self, about: pa.RecordBatch, documents: TokenDocuments) -> None:
        """Appends N documents and the N rows about them, whose column `row` is the source row."""
        if not len(documents):
            return
        self._documents.write_batch(rendered_batch(about.column("row"), documents))
        self._rows.write_batch(about)

    def write_reject(self, reject: Reject) -> None:
        self._rejects.append(reject.as_json_line())

    def commit(self, summary: dict[str, Any]) -> dict[str, Any]:
        """Completes the part. Returns the content of its JSON: `summary` with the sha256 of each of its files."""
        self._documents.close()
        self._rows.close()
        if self._rejects:
            rejects = self._temporary(self._rendered / f"{self._name}.rejects.jsonl")
            rejects.write_bytes(b"".join(self._rejects))
        hashes: dict[Path, dict[str, str]] = {self._rendered: {}, self._ids: {}}
        for path, temporary in self._temporaries.items():
            fsync_file(temporary)
            hashes[path.parent][path.name] = sha256_file(temporary)
            temporary.replace(path)
        for directory in hashes:
            fsync_directory(directory)
        summary = {**summary, "rendered_files": hashes[self._rendered], "ids_files": hashes[self._ids]}
        write_atomically(self._rendered / f"{self._name}.json", readable_json(summary))
        return summary

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(self, *_: object) -> None:
        """Removes what was not committed."""
        for writer in (self._documents, self._rows):
            abandon(writer)
        for temporary in self._temporaries.values():
            discard(temporary)


def rendered_batch(rows: pa.Int64Array, documents: TokenDocuments) -> pa.RecordBatch:
    """Documents as Arrow binary values that share memory with the flat arrays."""
    ends = np.concatenate([[0], np.cumsum(documents.lengths, dtype=np.int64)])
    columns = []
    for name, dtype in RENDERED_DTYPES.items():
        values = np.ascontiguousarray(getattr(documents, name), dtype=dtype)
        offsets = pa.py_buffer(ends * dtype.itemsize)
        columns.append(pa.Array.from_buffers(pa.large_binary(), len(documents), [None, offsets, pa.py_buffer(values)]))
    return pa.RecordBatch.from_arrays([rows, *columns], schema=RENDERED_SCHEMA)


@dataclass(frozen=True, kw_only=True)
class OpenPart:
    """A part while it is read: batches of `documents` and of `ids`, one for one; `rejects`: lines of JSON."""

    documents: Iterator[pa.RecordBatch]
    ids: Iterator[pa.RecordBatch]
    rejects: bytes


def read_folders(rendered: Path, ids: Path, parts: Sequence[dict[str, Any]]) -> Iterator[OpenPart]:
    """The parts in the two folders, in order."""
    for part in parts:
        rejects = rendered / f"{part_name(part['part'])}.rejects.jsonl"
        yield OpenPart(
            documents=read_ids(rendered, [part]),
            ids=read_ids(ids, [part]),
            rejects=rejects.read_bytes() if part["rejected"] else b"",
        )


def read_ids(directory: Path, parts: Sequence[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """The columns about each document of a shard, in source order.

    One batch per row group: both files of a part have the same row groups, so they are read in step.
    """
    for part in parts:
        with open_part(directory / f"{part_name(part['part'])}.parquet") as file:
            yield from row_groups(file)


def row_groups(file: pq.ParquetFile, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """One batch per row group. `columns`: those to read; None reads all."""
    for group in range(file.metadata.num_row_groups):
        (batch,) = file.read_row_group(group, columns=columns, use_threads=False).combine_chunks().to_batches()
        yield batch


def documents_of(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], TokenDocuments]:
    """The source row of each document of a batch of a rendered part, int64 [N], and the documents."""
    flat: dict[str, npt.NDArray[Any]] = {}
    lengths: dict[str, npt.NDArray[np.int32]] = {}
    for name, dtype in RENDERED_DTYPES.items():
        _, offsets, values = batch.column(name).buffers()
        ends = np.frombuffer(offsets, dtype=np.int64)[batch.column(name).offset :][: batch.num_rows + 1]
        flat[name] = np.frombuffer(values, dtype=np.uint8)[ends[0] : ends[-1]].view(dtype)
        lengths[name] = (np.diff(ends) // dtype.itemsize).astype(np.int32)
    if not all(np.array_equal(lengths["tokens"], other) for other in lengths.values()):
        raise ArtifactError("tokens, loss_mask and span_id of a rendered part differ in length", remedy=_AGAIN)
    return batch.column("row").to_numpy(), TokenDocuments(**flat, lengths=lengths["tokens"])


def open_part(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, pre_buffer=False)
    except (pa.ArrowInvalid, OSError) as fault:
        raise ArtifactError(f"an intermediate part cannot be read: {fault}", where=str(path), remedy=_AGAIN) from None


_AGAIN = "run the step that wrote it again"


def read_sidecar(path: Path) -> dict[str, Any]:
    """A JSON file that a step wrote. Raises ArtifactError if it is missing: the step did not finish.

    Looking up a missing key of the result also raises ArtifactError.
    """
    try:
        value = read_json(path, ArtifactError, path.name, _AGAIN)
    except FileNotFoundError:
        raise ArtifactError(
            f"{path.name} does not exist: the step that writes it has not finished", where=str(path), remedy=_AGAIN
        ) from None
    if not isinstance(value, dict):
        raise ArtifactError(f"{path.name} is no JSON object", where=str(path), remedy=_AGAIN)
    return _Sidecar(value, path)


class _Sidecar(dict[str, Any]):
    """The content of a file; a missing key raises ArtifactError, because the file is wrong, not the code."""

    def __init__(self, value: dict[str, Any], path: Path) -> None:
        super().__init__(value)
        self._path = path

    def __missing__(self, key: str) -> Any:
        raise ArtifactError(f"{self._path.name} has no {key}", where=str(self._path), remedy=_AGAIN)


def files_stand(directory: Path, sha256s: dict[str, str]) -> bool:
    """Whether every named file exists with the given sha256."""
    return all(
        (directory / name).is_file() and sha256_file(directory / name) == sha256 for name, sha256 in sha256s.items()
    )


def verify_files(directory: Path, sha256s: dict[str, str]) -> None:
    """Raises ArtifactError naming the first file that is missing or was changed since its step wrote it."""
    for name, sha256 in sha256s.items():
        path = directory / name
        if not path.is_file():
            raise ArtifactError("an intermediate file is missing", where=str(path), remedy=_AGAIN)
        if (digest := sha256_file(path)) != sha256:
            raise ArtifactError(
                f"an intermediate file has sha256 {digest}, its step wrote {sha256}", where=str(path), remedy=_AGAIN
            )
