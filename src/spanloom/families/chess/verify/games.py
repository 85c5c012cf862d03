"""Validates Parquet files before they are prepared, and prepared games.

In: a folder of Parquet files, or the root of prepared games (and optionally the files that they were made from).
Out: `Report`, with the file, the game and the ply of each finding.

The checks are independent of the code that made the data. The structure is read from the arrays. Games of the source
are converted again row by row, with boards by python-chess if it is installed. With `legal`, python-chess also checks
that each move is legal and leads to the next ply's board.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.dataset.manifest import files_of
from spanloom.dataset.root.inventory import AT_ONCE, check_inventory
from spanloom.errors import UNREADABLE_NPY, SpanloomError
from spanloom.families.chess import manifest
from spanloom.families.chess.encoding.draws import key_of
from spanloom.families.chess.encoding.fen import fen_fault, parse_fen
from spanloom.families.chess.encoding.python_chess import require_python_chess
from spanloom.families.chess.encoding.vocabulary import (
    BLACK_TO_MOVE,
    BOARD_INDICES,
    CASTLING,
    EMPTY,
    END_POS,
    MOVE_COUNT,
    NO_MOVE,
    PIECE_INDICES,
    PIECE_SYMBOLS,
    START_POS,
    WHITE_TO_MOVE,
)
from spanloom.families.chess.errors import ChessError
from spanloom.families.chess.options import CheckOptions
from spanloom.families.chess.reading.prepared import ARRAYS, ID_COLUMN, array_path, load_array, read_prepared
from spanloom.families.chess.reading.source import parquet_files, read_table, thinking_id
from spanloom.families.chess.reading.tables import COLUMNS, GameTable, Kind, ThinkingTable
from spanloom.families.chess.verify.copies import check_input, compare_source
from spanloom.families.chess.verify.legal import check_legal_games, check_legal_lines
from spanloom.families.chess.verify.manifest import check_content
from spanloom.families.chess.verify.rejects import check_left_out
from spanloom.findings import FINDINGS_KEPT_PER_CHECK, Report
from spanloom.split import SPLITS, id_digests, is_valid

_CASTLING_FIRST = BOARD_INDICES[CASTLING[0]]
NO_PROBABILITIES = "win, draw and loss are no probabilities"


@dataclass(frozen=True, kw_only=True)
class Checks(CheckOptions):
    """`games`, `thinking`: the folders that prepared games were made from, for comparison."""

    games: Path | None = None
    thinking: Path | None = None


def validate_place(place: Path, checks: Checks) -> Report:
    """Validates prepared games or a folder of Parquet files.

    Raises ChessError if `checks` has sources, but `place` is a folder of Parquet files.
    """
    if manifest.is_prepared(place):
        return validate_root(place, checks)
    if checks.games is not None or checks.thinking is not None:
        raise ChessError(
            "only prepared games can be checked against their source, and this folder holds none",
            where=str(place),
            remedy="give the root of prepared games, or leave --source and --thinking out",
        )
    return validate_folder(place, checks)


def kind_of(folder: Path) -> Kind:
    """The kind of a folder: thinking if its first readable Parquet file has a column `variations`, otherwise games."""
    for path in parquet_files(folder):
        try:
            return "thinking" if "variations" in pq.read_schema(path).names else "games"
        except (pa.ArrowException, OSError):
            continue
    return "games"


def validate_folder(folder: Path, checks: Checks) -> Report:
    """Validates a folder of Parquet files of either kind, see `kind_of`. An unreadable file is a finding.

    Raises NoFilesError for a folder without Parquet files, SpanloomError for `legal` without python-chess.
    """
    if checks.legal:
        require_python_chess()
    report, kind = Report(), kind_of(folder)
    for path in parquet_files(folder):
        try:
            table = read_table(path, kind)
        except SpanloomError as fault:
            report.wrong("schema", fault.what, file=path.name)
            continue
        report.ran("schema", 1)
        if isinstance(table, GameTable):
            _check_games(report, table, path.name, checks)
            _check_source_rows(report, table)
        else:
            report.ran("thinking rows", table.rows)
            for each in table.rejects:
                report.wrong("thinking rows", f"{each.game_id}: {each.reason}: {each.detail}", file=path.name)
            _check_thinking(report, table, path.name, checks)
    return report


def _check_source_rows(report: Report, table: GameTable) -> None:
    """Reports the rows and games that the table left out."""
    report.ran("games", len(table) + len(table.rejects))
    for each in table.rejects:
        report.wrong("games", f"{each.item}: {each.reason}: {each.detail}", file=table.file)
    report.ran("game ids", table.rows)
    if table.null_rows:
        report.wrong("game ids", f"{table.null_rows} rows have no game_id", file=table.file)
    report.ran("best moves", int(np.count_nonzero(table.played >= 0)))
    if table.best_unknown:
        report.wrong("best moves", f"{table.best_unknown} best_move values are not moves", file=table.file)


def validate_root(root: Path, checks: Checks) -> Report:
    """Validates prepared games, pending or promoted. With sources, `deep` games of each file are compared with them.

    Raises ManifestError without a manifest of prepared games, ChessError for a source of a kind that the prepared games
    do not have, SpanloomError for `legal` without python-chess.
    """
    if checks.legal:
        require_python_chess()
    content = manifest.read(root, pending=True)["content"]
    sources = {"games": checks.games, "thinking": checks.thinking}
    for kind, folder in sources.items():
        if folder is not None and not content["input"][kind]:
            noun = "games" if kind == "games" else "thinking rows"
            raise ChessError(f"{root} was prepared without {noun}", where=str(folder), remedy="leave their source out")
    report = Report()
    listed = list(files_of(content))
    report.ran("inventory", len({file.path for file in listed}))
    with ThreadPoolExecutor(AT_ONCE) as threads:  # hashing releases the GIL
        report.add(check_inventory(root, listed, SPLITS, threads))
    report.ran("manifest", 1)
    report.add(check_content(content))
    if not report.clean:
        return report  # files that do not match the manifest are not read
    for kind, folder in sources.items():
        if folder is not None:
            check_input(report, folder, content["input"][kind])
    for shard in content["shards"]:
        tables = [_check_table(report, root, content, shard, split, checks) for split in shard["splits"]]
        if report.clean:  # then all tables are readable
            report.ran("rejects", sum(shard["rejected"].values()))
            report.add(check_left_out(root, shard, [table for table in tables if table is not None]))
        folder = sources[shard["kind"]]
        if folder is not None and report.clean:
            compare_source(report, root, shard, folder, checks.deep)
    return report


def _check_table(
    report: Report, root: Path, content: dict[str, Any], shard: dict[str, Any], split: str, checks: Checks
) -> GameTable | ThinkingTable | None:
    """Checks the table of a shard's split on its own. Returns it, or None if it is unreadable."""
    kind, number, counts = shard["kind"], shard["shard"], shard["splits"][split]
    pattern = array_path(root, split, kind, number, "…").relative_to(root).as_posix().replace("….npy", "*")
    report.ran("arrays", len(ARRAYS[kind]))
    if faults := list(_array_faults(root, split, kind, number, counts)):
        for fault in faults:
            report.wrong("arrays", fault, file=pattern, split=split)
        return None
    table: GameTable | ThinkingTable = read_prepared(root, split, kind, number, shard["source"])
    ids = list(table.ids)
    report.ran("split", len(ids))
    held_out = is_valid(id_digests(ids), content["split"]["valid_fraction"])
    for item in np.flatnonzero(held_out != (split == "valid"))[: FINDINGS_KEPT_PER_CHECK + 1].tolist():
        report.wrong("split", f"{ids[item]!r} does not belong here", file=pattern, split=split)
    report.ran("keys", len(ids))
    named = ids if isinstance(table, GameTable) else [thinking_id(int(row)) for row in table.numbers]
    for item, name in enumerate(named):
        if table.keys[item].tobytes() != key_of(shard["source"], name):
            report.wrong("keys", f"the key of {name!r} is wrong", file=pattern, split=split)
    if isinstance(table, GameTable):
        if len(set(ids)) != len(ids):
            report.wrong("keys", "duplicate game_id", file=pattern, split=split)
        _check_games(report, table, pattern, checks)
    else:
        report.ran("fens", len(ids))
        for number, fen, board in zip(table.numbers.tolist(), ids, table.boards, strict=True):
            if fen_fault(fen) is not None or not np.array_equal(parse_fen(fen), board):
                report.wrong("fens", f"row {number}: its fen does not match its board", file=pattern, split=split)
        _check_thinking(report, table, pattern, checks)
    return table


def _array_faults(root: Path, split: str, kind: Kind, number: int, counts: dict[str, Any]) -> Iterator[str]:
    """Yields faults in dtypes, shapes, matching lengths, offsets, ids and file sizes.

    The file of an array must end where the array ends.
    """
    arrays = {}
    for name, dtype in ARRAYS[kind].items():
        path = array_path(root, split, kind, number, name)
        try:
            arrays[name] = load_array(path)
        except (OSError, *UNREADABLE_NPY) as fault:
            yield f"{name} cannot be read: {fault}"
            return
        if arrays[name].dtype != dtype:
            yield f"{name} is {arrays[name].dtype}, not {dtype}"
        mapped = arrays[name].base
        if not isinstance(mapped, np.memmap) or mapped.offset + mapped.nbytes != path.stat().st_size:
            yield f"the file of {name} does not end where the array does"
    yield from _ids_faults(array_path(root, split, kind, number, "ids"), ID_COLUMN[kind], counts["items"])
    items, positions = counts["items"], counts["positions"]
    if kind == "games":
        sizes = {"item": items, "row": positions}
    else:
        sizes = {"item": items, "variation": len(arrays["root_moves"]), "node": positions - items}
    for name, column in COLUMNS[kind].items():
        array, shape = arrays[name], column.shape(sizes[column.each])
        if array.shape != shape:
            yield f"{name} has the shape {array.shape}, not {shape}"
        elif column.cuts:
            end = sizes[column.cuts]
            if array[0] != 0 or array[-1] != end or (np.diff(array) < 0).any():
                yield f"{name} does not ascend from 0 to {end}"
            elif kind == "games" and (np.diff(array) == 0).any():
                yield f"{name} has a game without rows"


def _ids_faults(path: Path, column: str, items: int) -> Iterator[str]:
    """Yields faults of `ids.parquet`: it must be one string column without nulls, with a row for each item."""
    try:
        ids = pq.read_table(path)
        ids.validate(full=True)
    except (pa.ArrowException, OSError) as fault:
        yield f"the ids cannot be read: {fault}"
        return
    if ids.schema.names != [column] or ids.schema.types != [pa.string()]:
        yield f"the ids have the columns {', '.join(map(str, ids.schema))}, not {column}: string"
    elif ids.num_rows != items or ids.column(0).null_count:
        yield f"{ids.num_rows} ids, {ids.column(0).null_count} of them null, for {items} items"


def _check_games(report: Report, table: GameTable, file: str, checks: Checks) -> None:
    item_of = np.repeat(np.arange(len(table)), np.diff(table.offsets))

    def at(rows: npt.NDArray[np.intp], check: str, message: str) -> None:
        for row in rows.tolist():
            report.wrong(check, f"game {table.ids[item_of[row]]}, ply {table.plies[row]}: {message}", file=file)

    report.ran("boards", len(table.boards))
    at(np.flatnonzero(board_faults(table.boards)), "boards", "these are no tokens of a board")
    report.ran("moves", len(table.played))
    wrong = [(moves < NO_MOVE) | (moves >= MOVE_COUNT) for moves in (table.played, table.best)]
    at(np.flatnonzero(wrong[0] | wrong[1]), "moves", "this is no move of the vocabulary")
    report.ran("values", len(table.values))
    at(np.flatnonzero(value_faults(table.values, checks.tolerance)), "values", NO_PROBABILITIES)
    report.ran("plies", len(table.plies))
    same_game = item_of[1:] == item_of[:-1]
    at(np.flatnonzero(same_game & (np.diff(table.plies) <= 0)) + 1, "plies", "duplicate ply")
    if checks.legal and not (wrong[0] | wrong[1]).any() and not board_faults(table.boards).any():
        check_legal_games(report, table, file, item_of)


def _check_thinking(report: Report, table: ThinkingTable, file: str, checks: Checks) -> None:
    def at(items: npt.NDArray[np.intp], check: str, message: str) -> None:
        for item in items.tolist():
            report.wrong(check, f"row {table.numbers[item]}: {message}", file=file)

    row_of = np.repeat(np.arange(len(table)), np.diff(table.row_offsets))  # of a variation
    of_node = np.repeat(row_of, np.diff(table.node_offsets))
    report.ran("boards", len(table.boards) + len(table.node_boards))
    roots, nodes = board_faults(table.boards), board_faults(table.node_boards)
    at(np.flatnonzero(roots), "boards", "these are no tokens of a board")
    at(of_node[nodes], "boards", "a node has no tokens of a board")
    broken = bool(roots.any() or nodes.any())
    report.ran("moves", len(table.finals) + len(table.root_moves) + len(table.node_moves))
    for moves, rows in (
        (table.finals, np.arange(len(table))),
        (table.root_moves, row_of),
        (table.node_moves, of_node),
    ):
        wrong = (moves < NO_MOVE) | (moves >= MOVE_COUNT)
        at(rows[wrong], "moves", "this is no move of the vocabulary")
        broken = broken or bool(wrong.any())
    report.ran("values", len(table.values) + len(table.node_values))
    at(np.flatnonzero(value_faults(table.values, checks.tolerance)), "values", NO_PROBABILITIES)
    # Missing values of a node were read as zeros: three zeros are valid.
    present = table.node_values.any(axis=1)
    at(
        of_node[present & value_faults(table.node_values, checks.tolerance)],
        "values",
        "those of a node are no probabilities",
    )
    if checks.legal and not broken:
        check_legal_lines(report, table, file)


def board_faults(boards: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Invalid boards of uint8 [N, 68]: tokens in wrong places, or castling rights without king and rook. bool [N]."""
    if not len(boards):
        return np.zeros(0, np.bool_)
    wrong = (boards[:, 0] != START_POS) | (boards[:, 65] != END_POS)
    wrong |= ((boards[:, 1:65] > max(PIECE_SYMBOLS)) & (boards[:, 1:65] != EMPTY)).any(axis=1)
    wrong |= (boards[:, 67] != WHITE_TO_MOVE) & (boards[:, 67] != BLACK_TO_MOVE)
    castling = boards[:, 66].astype(np.int64) - _CASTLING_FIRST
    known = (castling >= 0) & (castling < len(CASTLING))
    wrong |= ~known
    held = np.array([[letter in rights for letter in "KQkq"] for rights in (*CASTLING[:-1], "")])[
        np.where(known, castling, 0)
    ]
    squares = boards[:, 1:65]
    for bit, (king, king_at, rook, rook_at) in enumerate(
        (("K", 4, "R", 7), ("K", 4, "R", 0), ("k", 60, "r", 63), ("k", 60, "r", 56))
    ):
        in_place = (squares[:, king_at] == PIECE_INDICES[king]) & (squares[:, rook_at] == PIECE_INDICES[rook])
        wrong |= held[:, bit] & ~in_place
    return np.asarray(wrong)


def value_faults(values: npt.NDArray[np.float64], tolerance: float) -> npt.NDArray[np.bool_]:
    """Invalid rows of win, draw, loss [N, 3]: outside 0 … 1, or all three are given and do not sum to 1. bool [N]."""
    missing = np.isnan(values)
    outside = (values < -tolerance) | (values > 1 + tolerance)
    astray = np.abs(np.where(missing, 0.0, values).sum(axis=1) - 1) > tolerance
    return np.asarray((outside & ~missing).any(axis=1) | (astray & ~missing.any(axis=1)))
