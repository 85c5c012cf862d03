"""Exports a dataset for other trainers, in one of the forms of `form`.

In: a dataset root, a form (`export_form`), additional files. Out: a folder with the data files of each split, the
additional files, and `export.json`, written last. One batch is in memory; a file ends after a number of tokens. So
memory and file size do not grow with the dataset.

    on disk, labels ahead    tokens S u M hi E S a C f M ok R EOD      span 0 0 0 0 2 2 2 2 2 2 2 0 0
    exported, token-aligned  input_ids the same                        span_id 0 0 0 0 0 2 2 2 2 2 2 2 0
                             labels    -100 where the loss mask is 0, else the token; trainers shift labels themselves
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.dataset import defaults
from spanloom.dataset.export import bridge_rows, disk_folder
from spanloom.dataset.export.disk_folder import StreamWriter
from spanloom.dataset.export.form import PADDING_COLUMN, Form, is_row_column
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.inventory import first_damage
from spanloom.dataset.root.layout import open_arrays, rows_file, shard_name
from spanloom.dataset.rows.table import row_batches
from spanloom.errors import ArtifactError, ConflictError, DatasetError
from spanloom.provenance import readable_json
from spanloom.records.parquet import abandon
from spanloom.storage import (
    discard,
    fsync_file,
    publish,
    remove_if_empty,
    sha256_file,
    temporary_beside,
    write_atomically,
)
from spanloom.storage.folders.filling import filling
from spanloom.storage.folders.repeated import MADE_JSON, OnSame, Output, finish, made_or_same
from spanloom.supervision import IGNORED, Lengths, shift_to_tokens
from spanloom.workers import OnProgress

EXPORT_JSON = "export.json"
PACKED_METADATA = "packed_metadata.json"
"""Megatron-Bridge's `packed_metadata_path`."""

RECORD_NAME = ".spanloom-export-unfinished"
"""The record in a folder whose export is not finished."""

TOKENS_AT_ONCE = 1 << 18

Targets = Callable[[tuple[str, int, int], Lengths, Mapping[str, npt.NDArray[Any]]], dict[str, pa.Array]]
"""Split, shard and the number of the first document, lengths int32 [N], arrays flat [T] → columns of a teacher, [N]."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A written export: `said` is the content of `export.json`."""

    content: Content
    form: Form
    said: Mapping[str, Any]


Beside = Mapping[str, Callable[[Exported], bytes]]
"""Files in addition to the data, such as the card and metadata: name → function that makes the bytes."""


def export_dataset(
    root: Path,
    content: Content,
    form: Form,
    out: Path,
    *,
    beside: Beside,
    tokens_per_file: int = defaults.TOKENS_PER_FILE,
    overwrite: bool = False,
    targets: Targets | None = None,
    on_progress: OnProgress | None = None,
    on_same: OnSame | None = None,
) -> dict[str, Any]:
    """Writes every document of the dataset at `root` to the folder `out`; returns the content of `export.json`.

    `targets`: for a form with the columns of a teacher.

    `on_progress`: receives the number of documents written so far, and their total.

    `overwrite`: replaces another export in `out`, once the new one is complete. The same dataset and options give the
    same bytes (with one version of pyarrow).

    Raises ConflictError if `out` has anything else, DatasetError if a file differs from the manifest's size or sha256,
    ArtifactError if the dataset cannot be read. After an error, no file of this run stays; files of a killed run are
    removed.
    """
    inside, dataset = out.resolve(), root.resolve()
    if inside == dataset or dataset in inside.parents:
        raise ConflictError("the export would be in the dataset", where=str(out), remedy="give another --out")
    if form.name == "megatron-bridge":
        beside = {PACKED_METADATA: _packed_metadata, **beside}
    disk_names = disk_folder.json_names([form.folder_of(split) for split in content.totals.splits])
    names = [*_part_names(content, form, tokens_per_file), *beside, *(disk_names if form.is_disk_folder else [])]
    names += [MADE_JSON, EXPORT_JSON]
    identity = {
        "content_sha256": content.sha256,
        "tokens_per_file": tokens_per_file,
        **form.options,
        "beside": list(beside),
    }
    output = Output(identity=identity, last=EXPORT_JSON, record_name=RECORD_NAME)

    def make(folder: Path) -> None:
        with filling(folder, record_name=RECORD_NAME, identity=identity, files=names) as finished:
            if finished:
                return
            if (damage := first_damage(root, content.as_dict())) is not None:
                raise DatasetError(
                    f"the dataset is damaged: {damage.message}",
                    where=str(root / (damage.file or "")),
                    remedy="build it again, or fetch it again; `spanloom validate ROOT` lists all faults",
                )
            _export(root, content, form, folder, output, beside, tokens_per_file, targets, on_progress)

    made_or_same(out, output, make, overwrite=overwrite, on_same=on_same)
    return dict(json.loads((out / EXPORT_JSON).read_bytes()))


def _part_names(content: Content, form: Form, tokens_per_file: int) -> Iterator[str]:
    """All data files that may be written: each except the last of a shard holds at least `tokens_per_file` tokens."""
    for shard in content.shards:
        for split, counts in shard.splits.items():
            for part in range(min(counts.sequences, counts.tokens // tokens_per_file + 1)):
                yield f"{form.folder_of(split)}/{_part_name(shard_name(shard.shard), part, form)}"


def _part_name(shard: str, part: int, form: Form) -> str:
    return f"{shard}-{part:05d}{form.suffix}"


def _export(
    root: Path,
    content: Content,
    form: Form,
    out: Path,
    output: Output,
    beside: Beside,
    tokens_per_file: int,
    targets: Targets | None,
    on_progress: OnProgress | None,
) -> None:
    splits = content.totals.splits
    total = content.totals.sequences
    files: list[dict[str, Any]] = []
    done = 0
    packed = {split: bridge_rows.RowCounts() for split in splits}

    def counted(documents: Iterator[Documents]) -> Iterator[Documents]:
        nonlocal done
        for each in documents:
            yield each
            done += each.lengths.size
            if on_progress is not None:
                on_progress(done, total)

    with ExitStack() as undo:
        for split in splits:
            folder = form.folder_of(split)
            undo.callback(remove_if_empty, out / folder)
            for shard in content.shards:
                if split not in shard.splits or not shard.splits[split].sequences:
                    continue
                prefix = out / folder / shard_name(shard.shard)
                writer = undo.enter_context(_Parts(prefix, form, tokens_per_file, undo))
                at_once = min(TOKENS_AT_ONCE, tokens_per_file)
                read = document_batches(root, content, form, split, shard.shard, at_once, targets)
                documents = counted(read)
                for batch in _batches(documents, content, form, packed[split]):
                    writer.write(batch)
                writer.finish()
                files += [{"split": split, **file, "path": f"{folder}/{file['path']}"} for file in writer.files]
        exported: dict[str, Any] = {
            "export": f"spanloom_{form.name.replace('-', '_')}_v1",
            "config_sha256": content.config_sha256,
            "content_sha256": content.sha256,
            "alignment": "labels" if form.name == "megatron-bridge" else "tokens",
            "splits": {
                split: {"sequences": counts.sequences, "tokens": counts.tokens} for split, counts in splits.items()
            },
            "files": files,
        }
        if form.sequence_length is not None:
            exported["sequence_length"] = form.sequence_length
            exported["packed"] = {split: asdict(counts) for split, counts in packed.items()}
        written = Exported(content=content, form=form, said=exported)
        others = {name: made(written) for name, made in beside.items()}
        for name, data in {**others, **_disk_files(written)}.items():
            undo.callback((out / name).unlink, missing_ok=True)
            write_atomically(out / name, data)
        for name in (MADE_JSON, EXPORT_JSON):
            undo.callback((out / name).unlink, missing_ok=True)
        finish(out, output, readable_json(exported))
        undo.pop_all()


def _disk_files(exported: Exported) -> dict[str, bytes]:
    """The JSON files of a folder of `save_to_disk`; none for Parquet."""
    if not exported.form.is_disk_folder:
        return {}
    streams: dict[str, list[dict[str, Any]]] = {}
    for file in exported.said["files"]:
        streams.setdefault(exported.form.folder_of(file["split"]), []).append(file)
    return disk_folder.json_files(streams, exported.content.sha256)


@dataclass(frozen=True, kw_only=True)
class Documents:
    """N documents as on disk: `lengths` int32 [N], the arrays flat [T]; `said`: column of the rows, or of a
    teacher → N values."""

    lengths: Lengths
    arrays: dict[str, npt.NDArray[Any]]
    said: dict[str, Any]


def document_batches(
    root: Path, content: Content, form: Form, split: str, shard: int, tokens: int, targets: Targets | None = None
) -> Iterator[Documents]:
    """The documents of one split of one shard, with the needed columns of their rows."""
    reader = open_arrays(root, split, shard, content.arrays)
    fields = [field for field in form.schema if is_row_column(field.name)]
    if content.block_size is not None:
        fields.append(pa.field(PADDING_COLUMN, pa.int64(), nullable=False))
    row_columns = {field.name: _column(rows_file(root, split, shard), field) for field in fields}
    for first, lengths, arrays in reader.batches(tokens):
        values = {name: list(islice(column, lengths.size)) for name, column in row_columns.items()}
        if any(len(column) != lengths.size for column in values.values()):
            raise ArtifactError(
                f"the rows of this shard end before document {first + lengths.size - 1}",
                where=f"{root}, {split}, shard {shard:02d}",
                remedy="`spanloom validate` says what else is wrong",
            )
        if targets is not None:
            values |= targets((split, shard, first), lengths, arrays)
        yield Documents(lengths=lengths, arrays=arrays, said=values)


def _batches(
    documents: Iterator[Documents], content: Content, form: Form, counts: bridge_rows.RowCounts
) -> Iterator[pa.RecordBatch]:
    """Documents → batches of rows in the form."""
    if form.sequence_length is None:
        for each in documents:
            yield exported_batch(form.schema, each.lengths, each.arrays, **each.said)
        return
    packer = bridge_rows.RowPacker(
        sequence_length=form.sequence_length,
        cut_behind=None if content.block_size is None else content.tokenizer.eod,
        drop_too_long=form.drop_too_long,
        counts=counts,
    )
    for each in documents:
        padding = np.array(each.said[PADDING_COLUMN], np.int64) if PADDING_COLUMN in each.said else None
        yield from packer.add(each.lengths, each.arrays, padding)
    yield from packer.finish()


def _packed_metadata(exported: Exported) -> bytes:
    length = exported.form.sequence_length
    assert length is not None
    packed = (bridge_rows.RowCounts(**counts) for counts in exported.said["packed"].values())
    return readable_json([counts.metadata(length) for counts in packed if counts.rows])


def exported_batch(
    schema: pa.Schema, lengths: Lengths, arrays: dict[str, npt.NDArray[Any]], **row_columns: Any
) -> pa.RecordBatch:
    """N documents as on disk → one Arrow batch of `schema`, token-aligned. `lengths` int32 [N], the arrays flat [T].

    `row_columns`: N values for each column of the row table: the columns that the family adds, and `padding_tokens`.
    """
    tokens = arrays["tokens"]
    loss_mask = shift_to_tokens(arrays["lossmask"], lengths)
    values = {
        "input_ids": tokens,
        "labels": np.where(loss_mask > 0, tokens, np.int32(IGNORED)),
        "loss_mask": loss_mask,
        "assistant_masks": loss_mask,
        "completion_mask": loss_mask,
    }
    if "span" in arrays:
        values["span_id"] = shift_to_tokens(arrays["span"], lengths)
    if "attention_mask" in schema.names:
        padding = row_columns.get(PADDING_COLUMN, np.zeros_like(lengths))
        values["attention_mask"] = _real(lengths, np.array(padding, dtype=np.int64))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32))
    columns = [
        pa.ListArray.from_arrays(offsets, pa.array(values[field.name]), type=field.type)
        if field.name in values
        else pa.array(row_columns[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _real(lengths: Lengths, padding: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """uint8 [T]: 0 for the last `padding` tokens of each document, 1 for all others."""
    counts = np.stack([lengths - padding, padding], axis=1).reshape(-1)
    return np.repeat(np.tile(np.array([1, 0], dtype=np.uint8), lengths.size), counts)


def _column(path: Path, field: pa.Field) -> Iterator[Any]:
    for batch in row_batches(path, pa.schema([field])):
        yield from batch.column(field.name).to_pylist()


class _Parts:
    """Writes `shard_NN-00000.parquet`, `…-00001.parquet`, …: a new file starts once one holds enough tokens."""

    def __init__(self, prefix: Path, form: Form, tokens_per_file: int, undo: ExitStack) -> None:
        self.files: list[dict[str, Any]] = []
        self._prefix, self._form, self._limit, self._undo = prefix, form, tokens_per_file, undo
        self._writer: pq.ParquetWriter | StreamWriter | None = None
        self._temporary = prefix
        self._rows = self._tokens = 0

    def __enter__(self) -> "_Parts":
        return self

    def __exit__(self, *_: object) -> None:
        """Closes an unfinished file; `undo` removes it."""
        if isinstance(self._writer, StreamWriter):
            self._writer.abandon()
        elif self._writer is not None:
            abandon(self._writer)

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._temporary = temporary_beside(self._path())
            self._undo.callback(discard, self._temporary)
            if self._form.is_disk_folder:
                self._writer = StreamWriter(self._temporary, self._form.schema)
            else:
                self._writer = pq.ParquetWriter(self._temporary, self._form.schema, compression="zstd")
        self._writer.write_batch(batch)
        self._rows += batch.num_rows
        self._tokens += len(batch.column("input_ids").values)
        if self._tokens >= self._limit:
            self.finish()

    def finish(self) -> None:
        """Gives the current file its final name, if there is one."""
        if self._writer is None:
            return
        self._writer.close()
        fsync_file(self._temporary)
        path, sha256, size = self._path(), sha256_file(self._temporary), self._temporary.stat().st_size
        if not path.exists():  # an existing file is foreign, and a conflict
            self._undo.callback(path.unlink, missing_ok=True)
        publish(self._temporary, path, sha256)
        self._writer = None
        self.files.append(
            {"path": path.name, self._form.unit: self._rows, "tokens": self._tokens, "bytes": size, "sha256": sha256}
        )
        self._rows = self._tokens = 0

    def _path(self) -> Path:
        return self._prefix.with_name(_part_name(self._prefix.name, len(self.files), self._form))
