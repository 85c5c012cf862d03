"""Parquet files of games and of thinking rows → tables of arrays, without bad games and rows.

In: a folder of `*.parquet`, read in the order of names.
Out: one `GameTable` or `ThinkingTable` per file: columns end to end, offsets of the games or rows, their keys for
draws, and the games or rows left out, with the reasons.

A file is read in batches. FENs and moves are not kept as text, only as boards and ids: about 110 bytes a row.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spanloom.errors import RejectedRowError, SourceError
from spanloom.families.chess.encoding.draws import keys_of
from spanloom.families.chess.encoding.fen import fen_fault, parse_column
from spanloom.families.chess.encoding.games import Values
from spanloom.families.chess.encoding.moves import UNKNOWN_MOVE, column_ids
from spanloom.families.chess.encoding.thinking import ThinkingRow, decoded, fens_of, row_from_boards
from spanloom.families.chess.encoding.vocabulary import BOARD_LENGTH, NO_MOVE
from spanloom.families.chess.errors import ChessError, NoFilesError
from spanloom.families.chess.reading.tables import COLUMNS, GameTable, Kind, Reject, ThinkingTable, offsets_of

GAME_COLUMNS = ("game_id", "ply", "fen", "played_move", "best_move", "win", "draw", "loss")
THINKING_COLUMNS = ("fen", "variations", "mcts_action", "win", "draw", "loss")
THINKING_OPTIONAL = ("played_move", "best_move")

BAD_FEN, UNKNOWN_PLAYED, NO_PLY = "bad fen", "unknown played_move", "no ply"
BAD_VARIATIONS = "bad variations"
_OF_ROWS = ("boards", "played", "best", "values")
"""The arrays with one value per row of a game, except the ply."""
_BATCH = 16384
_THINKING_BATCH = 256


def parquet_files(folder: Path) -> list[Path]:
    """The folder's `*.parquet`, sorted by name. Raises NoFilesError (a FileNotFoundError) if there are none."""
    if not folder.is_dir():
        raise NoFilesError("there is no such folder", where=str(folder), remedy="give a folder of Parquet files")
    files = sorted(path for path in folder.glob("*.parquet") if path.is_file())
    if not files:
        raise NoFilesError(
            "the folder holds no *.parquet, and no finished prepared games",
            where=str(folder),
            remedy="give a folder of Parquet files; where `chess prepare` was stopped, run it again",
        )
    return files


def read_table(path: Path, kind: Kind) -> "GameTable | ThinkingTable":
    """`read_games` or `read_thinking`."""
    return read_games(path) if kind == "games" else read_thinking(path)


def read_games(path: Path) -> GameTable:
    """Reads the games of one file. Raises SourceError, naming the file, if it is unreadable or lacks a column."""
    opened = _open(path, GAME_COLUMNS)
    ids, plies, bad = ([] for _ in range(3))
    parts: list[dict[str, npt.NDArray[Any]]] = []
    details: dict[int, tuple[str, str]] = {}  # row among the kept ones → reason and detail of its fault
    rows = kept = 0
    for batch in _batches(opened, path, GAME_COLUMNS, _BATCH):
        rows += len(batch)
        if batch.column("game_id").null_count:
            batch = batch.filter(pc.is_valid(batch.column("game_id")))
        fens, texts = batch.column("fen"), batch.column("played_move")
        boards, refused = parse_column(fens)
        played = column_ids(texts, boards)
        bad.append(refused | (played == UNKNOWN_MOVE))
        for row in np.flatnonzero(bad[-1]).tolist():
            details[kept + row] = (
                (BAD_FEN, str(fen_fault(fens[row].as_py())))
                if refused[row]
                else (UNKNOWN_PLAYED, repr(texts[row].as_py()))
            )
        kept += len(batch)
        ids.append(batch.column("game_id"))
        plies.append(batch.column("ply"))
        best = column_ids(batch.column("best_move"), boards)
        parts.append({"boards": boards, "played": played, "best": best, "values": _values(batch)})
    encoded = pa.chunked_array(ids, pa.string()).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0) if encoded.num_chunks else pa.array([], pa.string()).dictionary_encode()
    return _grouped(
        path.name,
        encoded,
        pa.chunked_array(plies, pa.int64()).combine_chunks(),
        {name: COLUMNS["games"][name].joined(part[name] for part in parts) for name in _OF_ROWS},
        np.concatenate([np.empty(0, np.bool_), *bad]),
        details,
        rows=rows,
    )


def _grouped(
    file: str,
    ids: pa.DictionaryArray,
    plies: pa.Array,
    columns: dict[str, npt.NDArray[Any]],
    bad: npt.NDArray[np.bool_],
    details: dict[int, tuple[str, str]],
    *,
    rows: int,
) -> GameTable:
    """Groups rows, given in file order, into games. Games with a bad row become rejects.

    The games are in the order of their first rows.
    """
    names: list[str] = ids.dictionary.to_pylist()
    codes = np.asarray(ids.indices, np.int64)
    no_ply, numbers = np.asarray(pc.is_null(plies)), np.asarray(plies.fill_null(0), np.int64)
    kept = codes.size
    order = np.lexsort((numbers, codes))
    faulty = bad | no_ply
    refused = np.zeros(len(names), np.bool_)
    refused[codes[faulty]] = True
    rejects: dict[int, Reject] = {}
    for row in order[faulty[order]].tolist():
        code = int(codes[row])
        if code not in rejects:
            reason, detail = (NO_PLY, "the ply is null") if no_ply[row] else details[row]
            ply = None if no_ply[row] else int(numbers[row])
            rejects[code] = Reject(file=file, game_id=names[code], ply=ply, reason=reason, detail=detail)
    order = order[~refused[codes[order]]]
    if not np.array_equal(order, np.arange(kept)):
        columns = {name: column[order] for name, column in columns.items()}
        codes, numbers = codes[order], numbers[order]
    usable = np.flatnonzero(~refused)
    usable_ids = [names[code] for code in usable.tolist()]
    without_best = columns["best"][columns["played"] >= 0]
    columns["best"] = np.maximum(columns["best"], np.int16(NO_MOVE))
    return GameTable(
        file=file,
        ids=usable_ids,
        keys=keys_of(file, usable_ids),
        offsets=np.concatenate([np.searchsorted(codes, usable), [codes.size]]).astype(np.int64),
        plies=numbers,
        **columns,
        rejects=tuple(rejects[code] for code in sorted(rejects)),
        rows=rows,
        null_rows=rows - kept,
        best_missing=int(np.count_nonzero(without_best == NO_MOVE)),
        best_unknown=int(np.count_nonzero(without_best == UNKNOWN_MOVE)),
    )


def read_thinking(path: Path) -> ThinkingTable:
    """Reads the thinking rows of one file.

    Raises SourceError, naming the file, if it is unreadable or lacks a column.
    """
    opened = _open(path, THINKING_COLUMNS)
    columns = (*THINKING_COLUMNS, *(name for name in THINKING_OPTIONAL if name in opened.schema_arrow.names))
    ids: list[str] = []
    numbers: list[int] = []
    made: list[ThinkingRow] = []
    rejects: list[Reject] = []
    rows = 0
    for batch in _batches(opened, path, columns, _THINKING_BATCH):
        fens = batch.column("fen").to_pylist()
        for number, row in enumerate(_converted(batch), start=rows):
            if isinstance(row, ThinkingRow):
                ids.append(fens[number - rows])
                numbers.append(number)
                made.append(row)
            else:
                reason, detail = row
                rejects.append(Reject(file=path.name, game_id=f"row {number}", ply=None, reason=reason, detail=detail))
        rows += len(batch)
    of_lines = ("root_moves", "visits", "fractions", "node_boards", "node_moves", "node_values")
    columns_of = COLUMNS["thinking"]
    return ThinkingTable(
        file=path.name,
        ids=ids,
        numbers=np.array(numbers, np.int64),
        keys=keys_of(path.name, (thinking_id(number) for number in numbers)),
        boards=np.array([row.board for row in made], np.uint8).reshape(-1, BOARD_LENGTH),
        finals=np.array([row.final for row in made], np.int16),
        values=np.array([row.values for row in made], np.float64).reshape(-1, 3),
        row_offsets=offsets_of(np.array([len(row) for row in made], np.int64)),
        node_offsets=offsets_of(columns_of["node_offsets"].joined(np.diff(row.node_offsets) for row in made)),
        **{name: columns_of[name].joined(getattr(row, name) for row in made) for name in of_lines},
        rejects=tuple(rejects),
        rows=rows,
    )


def thinking_id(number: int) -> str:
    """The id of a thinking row, for its key and for rejects: `row N`, where N is the row's number in the file."""
    return f"row {number}"


def _converted(batch: pa.RecordBatch) -> Iterator[ThinkingRow | tuple[str, str]]:
    """Yields each row of a batch, or the reason and detail of its fault. The FENs of all rows are parsed at once."""
    rows = batch.to_pylist()
    variations: list[list[dict[str, Any]] | str] = []
    fens: list[str | None] = []
    for row in rows:
        try:
            parsed = decoded(row["variations"])
            fens += fens_of(row, parsed)
            variations.append(parsed)
        except ChessError as fault:
            variations.append(fault.what)
    try:
        boards, refused = parse_column(pa.array(fens, pa.large_string()))
    except UnicodeEncodeError:  # a lone surrogate from a JSON escape
        fens = [fen if fen and fen.isascii() else None for fen in fens]
        boards, refused = parse_column(pa.array(fens, pa.large_string()))
    at = 0
    for row, cell in zip(rows, variations, strict=True):
        if isinstance(cell, str):
            yield BAD_VARIATIONS, cell
            continue
        part = slice(at, at := at + len(fens_of(row, cell)))
        if (wrong := np.flatnonzero(refused[part])).size:
            yield BAD_FEN, str(fen_fault(fens[part][wrong[0]]))
            continue
        try:
            yield row_from_boards(row, cell, boards[part])
        except ChessError as fault:
            yield BAD_VARIATIONS, fault.what


def _open(path: Path, columns: Sequence[str]) -> pq.ParquetFile:
    try:
        opened = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowInvalid, OSError) as fault:
        raise SourceError(f"the file cannot be read as Parquet: {fault}", where=str(path)) from None
    names = opened.schema_arrow.names
    if twice := [name for name in (*columns, *THINKING_OPTIONAL) if names.count(name) > 1]:
        raise SourceError(f"the file has the column {', '.join(twice)} more than once", where=str(path))
    missing = [name for name in columns if name not in names]
    if missing:
        raise SourceError(
            f"the file lacks the column {', '.join(missing)}",
            where=str(path),
            remedy=f"it needs {', '.join(columns)}",
        )
    return opened


def _batches(opened: pq.ParquetFile, path: Path, columns: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
    """Yields the file's columns in batches, each cast to its type."""
    # Looked up now: if the generator is closed when Python exits, module attributes may already be gone.
    unreadable = (pa.ArrowException, OSError)
    try:
        for batch in opened.iter_batches(batch_size=size, columns=list(columns)):
            arrays = []
            for name in columns:
                try:
                    arrays.append(_CASTS.get(name, _as_text)(batch.column(name)))
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError) as fault:
                    raise SourceError(
                        f"the column {name} is {batch.column(name).type}, which cannot be converted to the "
                        f"expected type: {fault}",
                        where=str(path),
                    ) from None
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))
    except unreadable as fault:
        raise SourceError(f"the file cannot be read: {fault}", where=str(path)) from None


def _as_text(column: pa.Array) -> pa.Array:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (_is_text(kind) or pa.types.is_null(kind)):
        raise TypeError("it must be a string")
    return column.cast(pa.string())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _as_id(column: pa.Array) -> pa.Array:
    """Ids as text. Floats become integers first: pandas stores integers with nulls as floats."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_floating(kind):
        column = _whole(column)
    elif not (pa.types.is_integer(kind) or _is_text(kind) or pa.types.is_null(kind)):
        raise TypeError("it must be a string or an integer")
    return column.cast(pa.string())


def _as_ply(column: pa.Array) -> pa.Array:
    if pa.types.is_floating(column.type):
        return _whole(column)
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise TypeError("it must be an integer")
    return column.cast(pa.int64())


def _whole(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(column), None, column).cast(pa.int64())  # raises for a fraction


def _as_number(column: pa.Array) -> pa.Array:
    numbers = (pa.types.is_floating, pa.types.is_integer, pa.types.is_null, pa.types.is_decimal)
    if not any(is_kind(column.type) for is_kind in numbers):
        raise TypeError("it must be a number")
    return column.cast(pa.float64())


def _as_variations(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_binary(kind):
        return column
    return _as_text(column)


_CASTS = {
    "game_id": _as_id,
    "ply": _as_ply,
    "win": _as_number,
    "draw": _as_number,
    "loss": _as_number,
    "variations": _as_variations,
}


def _values(batch: pa.RecordBatch) -> Values:
    return np.stack(
        [np.asarray(batch.column(name).fill_null(np.nan), np.float64) for name in ("win", "draw", "loss")], axis=1
    )


def reasons(rejects: Sequence[Reject]) -> dict[str, int]:
    """Reason → number of rejects."""
    return dict(Counter(reject.reason for reject in rejects))


def raise_first(rejects: Sequence[Reject], path: Path) -> None:
    """Raises ChessError for the first reject, naming file, game and ply. Does nothing if there are no rejects."""
    if rejects:
        raise ChessError(
            f"{rejects[0].reason}: {rejects[0].detail}",
            where=f"{path}, {rejects[0].item}",
            remedy='fix it, or give on_error="skip" to leave such games out',
        )


def raise_beyond(rejects: Sequence[Reject], path: Path, allowed: int) -> None:
    """Raises RejectedRowError for the first reject beyond those that are allowed."""
    if len(rejects) > allowed:
        reject = rejects[allowed]
        raise RejectedRowError(
            f"{reject.reason}: {reject.detail} (more than {allowed} games rejected)",
            where=f"{path}, {reject.item}",
            remedy="fix it, or let more be set aside with --max-rejects N (or 0.1%)",
        )
