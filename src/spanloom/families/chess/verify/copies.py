"""Checks prepared games against the Parquet files that they were made from.

In: a shard of the manifest and its file. Out: findings. All games and rows are checked for presence, length and the
reason for being left out. A sample of them is compared value by value: the sampled games and rows are converted again
row by row, without the code that reads whole columns. Their boards come from python-chess if it is installed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.families.chess.encoding.fen import NO_FEN, fen_fault, parse_fen
from spanloom.families.chess.encoding.games import Game
from spanloom.families.chess.encoding.moves import move_name
from spanloom.families.chess.encoding.python_chess import python_chess, tokens_by_python_chess
from spanloom.families.chess.encoding.thinking import decoded, fens_of, thinking_row
from spanloom.families.chess.encoding.vocabulary import MOVE_IDS, PIECE_INDICES, SQUARES
from spanloom.families.chess.errors import ChessError
from spanloom.families.chess.reading.prepared import read_prepared
from spanloom.families.chess.reading.source import (
    BAD_FEN,
    BAD_VARIATIONS,
    GAME_COLUMNS,
    NO_PLY,
    UNKNOWN_PLAYED,
    thinking_id,
)
from spanloom.families.chess.reading.tables import GameTable, Reject, ThinkingTable
from spanloom.families.chess.verify.rejects import read_rejects
from spanloom.findings import Finding, Report
from spanloom.storage import sha256_file


def check_input(report: Report, folder: Path, listed: list[dict[str, Any]]) -> None:
    """Checks a folder's Parquet files against those in the manifest: names, rows, bytes and hashes."""
    report.ran("source files", len(listed))
    paths = {path.name: path for path in folder.glob("*.parquet") if path.is_file()}
    names = [entry["path"] for entry in listed]
    faults = [(name, "the folder holds this file, which was not prepared") for name in paths if name not in names]
    for entry in listed:
        if (path := paths.get(entry["path"])) is None:
            faults.append((entry["path"], "the source's file does not exist"))
        elif sha256_file(path) != entry["sha256"]:
            faults.append((path.name, "the source's file is another than the one that was prepared"))
        else:
            actual = {"bytes": path.stat().st_size, "rows": pq.read_metadata(path).num_rows}
            faults += [
                (path.name, f"input: {name} is {entry[name]}, the file has {number}")
                for name, number in actual.items()
                if entry[name] != number
            ]
    report.add(Finding(check="source", message=message, file=name) for name, message in sorted(faults))


def compare_source(report: Report, root: Path, shard: dict[str, Any], folder: Path, deep: int | None) -> None:
    """Compares one file with its tables. The file must have the recorded hash.

    Ids, lengths, FENs and left-out games are compared for all games or rows. All values are compared for `deep` games
    or rows of each split.
    """
    compare = _compare_games if shard["kind"] == "games" else _compare_thinking
    for message in compare(report, root, shard, folder / shard["source"], deep):
        report.wrong("source", message, file=shard["source"])


def _tables(root: Path, shard: dict[str, Any]) -> list[Any]:
    return [read_prepared(root, split, shard["kind"], shard["shard"], shard["source"]) for split in shard["splits"]]


def _chosen(items: int, deep: int | None) -> range:
    """The items of a table that are compared by value: at most `deep`, spread evenly over the table; None: all."""
    if deep is None:
        return range(items)
    return range(0, items, max(1, -(-items // deep))) if deep else range(0)


def _compare_games(report: Report, root: Path, shard: dict[str, Any], path: Path, deep: int | None) -> Iterator[str]:
    tables: list[GameTable] = _tables(root, shard)
    rejects = {each.game_id: each for each in read_rejects(root, shard)}
    lengths = {
        name: length
        for table in tables
        for name, length in zip(table.ids, np.diff(table.offsets).tolist(), strict=True)
    }
    wanted = {table.ids[item]: (table, item) for table in tables for item in _chosen(len(table), deep)}
    report.ran("source", len(wanted))
    report.ran("source games", len(lengths) + len(rejects))

    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in (*wanted, *rejects)}
    counts: Counter[str] = Counter()  # rows of each game, in the order in which games begin
    without_best: Counter[str] = Counter()
    null_rows = 0
    for batch in pq.ParquetFile(path).iter_batches(columns=list(GAME_COLUMNS)):
        columns = (batch.column(name).to_pylist() for name in ("game_id", "played_move", "best_move"))
        kept = []
        for row, (game_id, played, best) in enumerate(zip(*columns, strict=True)):
            if game_id is None or game_id != game_id:
                null_rows += 1
                continue
            name = _text_of(game_id)
            counts[name] += 1
            without_best[name] += bool(played) and not best
            if name in rows:
                kept.append(row)
        for each in batch.take(pa.array(kept, pa.int64())).to_pylist():
            rows[_text_of(each["game_id"])].append(each)

    for name in counts:
        if name not in lengths and name not in rejects:
            yield f"game {name} is in the source, but neither in the prepared games nor in the rejects"
    for name, length in lengths.items():
        if counts[name] != length:
            yield f"game {name} has {length} plies, in the source {counts[name]}"
    order = {name: place for place, name in enumerate(counts)}
    if any(places != sorted(places) for places in ([order.get(name, -1) for name in table.ids] for table in tables)):
        yield "the games are not in the order of the source"
    missing = sum(without_best[name] for name in lengths)
    for field, number in (("null_rows", null_rows), ("best_missing", missing)):
        if shard[field] != number:
            yield f"{field} is {shard[field]}, by the source {number}"
    if list(rejects) != (ordered := sorted(rejects, key=lambda name: order.get(name, -1))):
        yield f"the rejects are not in the order of the source: {', '.join(ordered[:3])} …"
    for name, reject in rejects.items():
        if _first_fault(rows[name], shard["source"], name) != reject:
            yield f"game {name} has a reject that differs from the fault in the source"

    chess = python_chess()
    for name, (table, item) in wanted.items():
        if (fault := _first_fault(rows[name], shard["source"], name)) is not None:
            yield f"game {name} should have been left out: {fault.reason}"
            continue
        ordered_rows = sorted(rows[name], key=lambda row: row["ply"])
        game, plies = table.game(item), table.plies[table.offsets[item] : table.offsets[item + 1]].tolist()
        if [row["ply"] for row in ordered_rows] != plies or not all(
            _same_row(chess, row, game, at) for at, row in enumerate(ordered_rows)
        ):
            yield f"game {name} differs from the source"


def _first_fault(rows: Sequence[dict[str, Any]], file: str, name: str) -> Reject | None:
    """The reject for a game, from its rows in file order; None if it is valid."""
    for row in sorted(rows, key=lambda row: 0 if _is_missing(row["ply"]) else row["ply"]):
        if _is_missing(row["ply"]):
            return Reject(file=file, game_id=name, ply=None, reason=NO_PLY, detail="the ply is null")
        ply, fen, played = int(row["ply"]), row["fen"], row["played_move"]
        if (detail := fen_fault(fen)) is not None:
            return Reject(file=file, game_id=name, ply=ply, reason=BAD_FEN, detail=detail)
        if played and _normal(played, parse_fen(fen).tolist()) is None:
            return Reject(file=file, game_id=name, ply=ply, reason=UNKNOWN_PLAYED, detail=repr(played))
    return None


def _is_missing(value: Any) -> bool:
    return value is None or value != value


def _same_row(chess: ModuleType | None, row: dict[str, Any], game: Game, at: int) -> bool:
    """Whether a row of the source equals row `at` of the game. python-chess computes the board if `chess` is given."""
    fen = row["fen"]
    board = parse_fen(fen).tolist() if chess is None else tokens_by_python_chess(chess, chess.Board(fen))
    return (
        board == game.boards[at].tolist()
        and _normal(row["played_move"], board) == move_name(int(game.played[at]))
        and _normal(row["best_move"], board) == move_name(int(game.best[at]))
        and all(
            _same_number(row[column], game.values[at, place]) for place, column in enumerate(("win", "draw", "loss"))
        )
    )


def _compare_thinking(report: Report, root: Path, shard: dict[str, Any], path: Path, deep: int | None) -> Iterator[str]:
    tables: list[ThinkingTable] = _tables(root, shard)
    rejects = {each.game_id: each for each in read_rejects(root, shard)}
    fens = {number: fen for table in tables for number, fen in zip(table.numbers.tolist(), table.ids, strict=True)}
    wanted = {int(table.numbers[item]): (table, item) for table in tables for item in _chosen(len(table), deep)}
    report.ran("source", len(wanted))
    report.ran("source rows", len(fens) + len(rejects))
    rows = (row for batch in pq.ParquetFile(path).iter_batches(batch_size=256) for row in batch.to_pylist())
    for number, row in enumerate(rows):
        if number in fens and fens[number] != row["fen"]:
            yield f"row {number} has another fen in the source"
        if (reject := rejects.get(thinking_id(number))) is not None:
            if not _left_out_for(row, reject):
                yield f"row {number} has a reject that differs from the fault in the source"
        elif number in wanted and not _same_thinking(row, *wanted[number]):
            yield f"row {number} differs from the source"


def _same_thinking(row: dict[str, Any], table: ThinkingTable, item: int) -> bool:
    try:
        made, prepared = thinking_row(_as_floats(row)), table.row(item)
    except ChessError:
        return False
    return all(
        np.array_equal(getattr(made, name), getattr(prepared, name), equal_nan=name == "values")
        for name in made.__dataclass_fields__
    )


def _left_out_for(row: dict[str, Any], reject: Reject) -> bool:
    """Whether a thinking row is invalid for the recorded reason."""
    try:
        fens = fens_of(row, decoded(row["variations"]))
        wrong = [fen for fen in fens if fen_fault(fen) is not None]
        if not wrong:
            thinking_row(_as_floats(row))
            return False
    except ChessError as fault:
        return (reject.reason, reject.detail) == (BAD_VARIATIONS, fault.what)
    # Invalid Unicode in one row makes all non-ASCII FENs of its batch count as missing.
    details = {fen_fault(wrong[0]), NO_FEN if wrong[0] and not wrong[0].isascii() else None}
    return reject.reason == BAD_FEN and reject.detail in details


def _as_floats(row: dict[str, Any]) -> dict[str, Any]:
    """The row with decimals converted to floats."""
    return {name: float(value) if isinstance(value, Decimal) else value for name, value in row.items()}


def _text_of(game_id: Any) -> str:
    return str(int(game_id)) if isinstance(game_id, float) and game_id == int(game_id) else str(game_id)


def _normal(move: str | None, board: list[int]) -> str | None:
    """A move as the vocabulary spells it; None if it is missing or not in the vocabulary."""
    if not move:
        return None
    if len(move) == 5 and move.endswith("n"):
        move = move[:4]
    rooks = {"e1g1": "e1h1", "e1c1": "e1a1", "e8g8": "e8h8", "e8c8": "e8a8"}
    if move in rooks and board[1 + SQUARES.index(move[:2])] in (PIECE_INDICES["K"], PIECE_INDICES["k"]):
        move = rooks[move]
    return move if move in MOVE_IDS else None


def _same_number(source: Any, prepared: float) -> bool:
    if source is None or source != source:
        return bool(np.isnan(prepared))
    return float(source) == prepared
