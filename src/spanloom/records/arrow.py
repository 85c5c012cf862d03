"""Arrow IPC files and folders of Hugging Face `save_to_disk`: rows in order, each with its place.

In: a local file, of the stream or the file format, or a folder. Out: rows as Python values. Memory use depends on the
size of a batch. Each batch is validated in full before its values are used: a damaged file may hold wrong offsets.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from spanloom.errors import RecordError, SourceError
from spanloom.records.files import OnUnreadable, RecordPlace, stop
from spanloom.records.parquet import BATCH_ROWS, batch_values, one_line
from spanloom.records.unpacked import OnRead
from spanloom.storage.small_files import read_json

STATE_NAME = "state.json"
DICT_NAME = "dataset_dict.json"
_REMEDY = "save it again with `datasets`"
_FILE_MAGIC = b"ARROW1"


def saved_files(folder: Path) -> list[Path] | None:
    """The Arrow files of a folder that `save_to_disk` wrote, in the order of its rows; None for any other folder.

    Raises SourceError for a folder with several splits, which are several data sets, and for a damaged folder.
    """
    folders = saved_splits(folder)
    if len(folders) != 1:
        raise SourceError(
            f"the folder holds {len(folders)} splits: {', '.join(path.name for path in folders) or 'none'}",
            where=str(folder),
            remedy=f"give the folder of one: {next(iter(folders), folder / 'train')}",
        )
    (folder,) = folders
    if not (folder / STATE_NAME).is_file():
        return None
    state = _json(folder / STATE_NAME)
    listed = state.get("_data_files")
    entries = listed if isinstance(listed, list) else []
    names = [str(entry["filename"]) for entry in entries if isinstance(entry, dict) and "filename" in entry]
    if not names or len(names) < len(entries) or any(Path(name).name != name for name in names):
        raise SourceError(f"{STATE_NAME} lists no data files", where=str(folder), remedy=_REMEDY)
    if state.get("_indices_data_files"):
        raise SourceError(
            "the rows are chosen by a file of indices, which is not read here",
            where=str(folder),
            remedy="call flatten_indices() before save_to_disk()",
        )
    if missing := [name for name in names if not (folder / name).is_file()]:
        raise SourceError(f"files are missing: {', '.join(missing)}", where=str(folder), remedy="fetch it again")
    return [folder / name for name in names]


def saved_splits(folder: Path) -> list[Path]:
    """The folders of the splits of a saved `DatasetDict`; of anything else the folder itself."""
    if not (folder / DICT_NAME).is_file():
        return [folder]
    splits = _json(folder / DICT_NAME).get("splits")
    known = [name for name in splits if isinstance(name, str)] if isinstance(splits, list) else []
    return [folder / name for name in known if name and Path(name).name == name]


def _json(path: Path) -> dict[str, Any]:
    value = read_json(path, SourceError, "the description of the data set", _REMEDY)
    if not isinstance(value, dict):
        raise SourceError("the description of the data set is not a JSON object", where=str(path), remedy=_REMEDY)
    return value


def arrow_rows(
    path: Path,
    columns: Sequence[str] | None = None,
    unreadable: OnUnreadable = stop,
    on_read: OnRead | None = None,
    needless: Collection[str] = (),
) -> Iterator[tuple[RecordPlace, list[Any]]]:
    """Place and values of each row, in the order of `columns` (default: all). Other columns are not checked either.

    `needless`: columns of which a value that Python cannot represent is UNREADABLE, and the row goes on. Raises
    SourceError if the file cannot be read.
    """
    row = 0
    try:
        with pa.OSFile(str(path)) as file, _batches(file) as batches:
            for whole in batches:
                if on_read is not None:
                    on_read(file.tell())
                for first in range(0, whole.num_rows, BATCH_ROWS):
                    batch = whole.slice(first, BATCH_ROWS)
                    names = batch.schema.names if columns is None else columns
                    _check([batch.column(name) for name in names])
                    values, torn = batch_values(batch, names, needless)
                    for index, row_values in enumerate(zip(*values, strict=True)):
                        where = RecordPlace.of(path, "row", row + index + 1)
                        if index in torn:
                            unreadable(RecordError(f"the row holds {torn[index]}", where=where))
                        else:
                            yield where, list(row_values)
                    row += batch.num_rows
    except (pa.ArrowException, OSError) as fault:
        raise _unreadable(fault, path, row) from None


def arrow_schema(path: Path) -> pa.Schema:
    """The columns of a file. Raises SourceError if it cannot be read."""
    try:
        with pa.OSFile(str(path)) as file, _opened(file) as reader:
            return reader.schema
    except (pa.ArrowException, OSError) as fault:
        raise _unreadable(fault, path, 0) from None


def arrow_batches(path: Path) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Validated batches, each with the number of its first row, from 0. Raises SourceError for an unreadable file."""
    row = 0
    try:
        with pa.OSFile(str(path)) as file, _batches(file) as batches:
            for batch in batches:
                _check(batch.columns)
                yield row, batch
                row += batch.num_rows
    except (pa.ArrowException, OSError) as fault:
        raise _unreadable(fault, path, row) from None


def _unreadable(fault: pa.ArrowException | OSError, path: Path, row: int) -> Exception:
    """The error to raise: a system error (with errno) unchanged, any other as a SourceError."""
    if isinstance(fault, OSError) and fault.errno is not None:
        return fault
    return SourceError(
        f"the Arrow file cannot be read: {one_line(fault)}", where=f"{path}, after row {row}", remedy="fetch it again"
    )


@contextmanager
def _opened(file: pa.NativeFile) -> Iterator[Any]:
    """A reader of the file format or of the stream format."""
    magic = file.read(len(_FILE_MAGIC))
    file.seek(0)
    with (pa.ipc.open_file if magic == _FILE_MAGIC else pa.ipc.open_stream)(file) as reader:
        yield reader


@contextmanager
def _batches(file: pa.NativeFile) -> Iterator[Iterator[pa.RecordBatch]]:
    with _opened(file) as reader:
        if isinstance(reader, pa.ipc.RecordBatchFileReader):
            yield (reader.get_batch(index) for index in range(reader.num_record_batches))
        else:
            yield iter(reader)


def _check(columns: Iterable[pa.Array]) -> None:
    """Raises ArrowInvalid for offsets outside a buffer. Text that is not UTF-8 passes."""
    for column in columns:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as fault:
            if "UTF8" not in str(fault):
                raise
