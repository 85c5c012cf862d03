"""Prepared games: the tables of `source` as memory-mapped arrays, a set of files for each Parquet file and split.

In: tables. Out: `ROOT/{train,valid}/games_00000_boards.npy` and so on (NumPy's format). `read_prepared` opens them as
tables again. The arrays stay on disk until they are sliced.

    games_NNNNN_     offsets int64 [G + 1]   keys uint8 [G, 16]   ids.parquet (game_id)
                     boards uint8 [P, 68]    played, best int16 [P]   values float64 [P, 3]   plies int64 [P]
    thinking_NNNNN_  row_offsets int64 [R + 1]   keys uint8 [R, 16]   ids.parquet (fen)   numbers int64 [R]
                     boards uint8 [R, 68]   finals int16 [R]   values float64 [R, 3]
                     root_moves int16 [V]   visits, fractions float64 [V]   node_offsets int64 [V + 1]
                     node_boards uint8 [M, 68]   node_moves int16 [M]   node_values float64 [M, 3]

NNNNN is the number of the source file among those of its kind. `GameTable` and `ThinkingTable` describe the arrays.
Files are created under their final name, complete or not at all, and never overwritten.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.dataset.root.layout import REJECTS
from spanloom.families.chess.reading.tables import COLUMNS, GameTable, Kind, ThinkingTable
from spanloom.storage import fsync_file, publish, sha256_file, temporary_beside

KINDS: tuple[Kind, ...] = ("games", "thinking")

ARRAYS = {kind: {name: column.dtype for name, column in columns.items()} for kind, columns in COLUMNS.items()}
"""The arrays of a table by kind, and their dtypes."""

ID_COLUMN: dict[Kind, str] = {"games": "game_id", "thinking": "fen"}
"""The only column of `ids.parquet`, of type string."""


def array_path(root: Path, split: str, kind: Kind, number: int, name: str) -> Path:
    """The path of an array of a table; `ids` is a Parquet file."""
    suffix = "parquet" if name == "ids" else "npy"
    return root / split / f"{kind}_{number:05d}_{name}.{suffix}"


def rejects_path(root: Path, kind: Kind, number: int) -> Path:
    """The path of a file's rejects: `ROOT/rejects/games_00003.jsonl`"""
    return root / REJECTS / f"{kind}_{number:05d}.jsonl"


def prepared_bytes(kind: Kind, path: Path) -> int:
    """About how many bytes the arrays of a Parquet file take; 0 if it cannot be read, which `read_table` reports.

    A node of a thinking row has 94 bytes, fewer than the JSON that it is read from, with its FEN.
    """
    try:
        file = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return 0
    if kind == "thinking":
        return sum(file.row_group(group).total_byte_size for group in range(file.num_row_groups))
    columns = (column for column in COLUMNS[kind].values() if column.each == "row")
    return int(file.num_rows) * sum(np.dtype(column.dtype).itemsize * (column.width or 1) for column in columns)


def write_table(
    root: Path, split: str, kind: Kind, number: int, table: GameTable | ThinkingTable
) -> list[dict[str, Any]]:
    """Writes a table's files. Returns `{path, bytes, sha256}` of each. Raises ConflictError if different ones exist."""
    files = []
    for name in (*ARRAYS[kind], "ids"):
        path = array_path(root, split, kind, number, name)
        temporary = temporary_beside(path)
        if name == "ids":
            pq.write_table(pa.table({ID_COLUMN[kind]: pa.array(list(table.ids), pa.string())}), temporary)
        else:
            array = np.ascontiguousarray(getattr(table, name))
            assert array.dtype == ARRAYS[kind][name], (name, array.dtype)
            with temporary.open("w+b") as stream:  # with "wb", NumPy bypasses Python and does not notice a full disk
                np.lib.format.write_array(stream, array, allow_pickle=False)
        fsync_file(temporary)
        size, sha256 = temporary.stat().st_size, sha256_file(temporary)
        publish(temporary, path, sha256)
        files.append({"path": path.relative_to(root).as_posix(), "bytes": size, "sha256": sha256})
    return files


class StoredIds(Sequence[str]):
    """The ids of a prepared table, read on first access: training never needs them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: list[str] | None = None

    def _read(self) -> list[str]:
        if self._ids is None:
            self._ids = pq.read_table(self._path).column(0).to_pylist()
        return self._ids

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def load_array(path: Path) -> npt.NDArray[Any]:
    """Opens an array on disk, memory-mapped."""
    # Converted to a plain array: slicing an np.memmap takes three times as long.
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def read_prepared(root: Path, split: str, kind: Kind, number: int, source: str) -> Any:
    """Opens one `GameTable` or `ThinkingTable`. `source`: the name of the Parquet file that it was made from."""
    arrays = {name: load_array(array_path(root, split, kind, number, name)) for name in ARRAYS[kind]}
    ids = StoredIds(array_path(root, split, kind, number, "ids"))
    table: Any = GameTable if kind == "games" else ThinkingTable
    return table(**arrays, file=source, ids=ids, rejects=(), rows=len(arrays["values"]))
