"""PGN files → the pretraining schema, so that people can begin with the games they have.

In: PGN text, as lichess or a chess program writes it. Out: rows of the pretraining schema, a folder of Parquet files,
and counts of what was left out.

A comment `[%eval 0.31]` or `[%eval #-3]` behind a move judges the position that the move leads to, which is that of the
next row: its win, draw and loss are Stockfish's own estimate for such an evaluation, seen from the side to move. Rows
without one have none (null), and train no value.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.errors import SourceError
from spanloom.families.chess.encoding.python_chess import require_python_chess, uci_of
from spanloom.families.chess.errors import ChessError
from spanloom.storage import fsync_file, publish, sha256_file, temporary_beside

BestMove = Literal["played", "none"]
Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("game_id", pa.string()),
        ("ply", pa.int32()),
        ("fen", pa.string()),
        ("played_move", pa.string()),
        ("best_move", pa.string()),
        ("win", pa.float64()),
        ("draw", pa.float64()),
        ("loss", pa.float64()),
    ]
)
"""The pretraining schema."""


def row_of(schema: pa.Schema, *values: Any) -> Row:
    """A row with these values, in the order of the schema's columns."""
    return dict(zip(schema.names, values, strict=True))


VARIANT, NO_MOVES, UNREADABLE = "another variant", "no moves", "moves that cannot be read"


@dataclass(kw_only=True)
class PgnCounts:
    """What a conversion made: games and rows written, rows with values, games left out by reason."""

    games: int = 0
    rows: int = 0
    rows_with_values: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


def game_rows(game: Any, game_id: str, *, best_move: BestMove) -> list[Row]:
    """The rows of one game of python-chess, a row a move, with the values of its comments."""
    rows: list[Row] = []
    board, node = game.board(), game
    while node.variations:
        judged = node.eval()  # of the position on the board, by the comment behind the move that led to it
        values: tuple[float | None, ...] = (None, None, None)
        if judged is not None:
            wdl = judged.pov(board.turn).wdl(model="sf", ply=max(board.ply(), 1))
            values = tuple(part / wdl.total() for part in (wdl.wins, wdl.draws, wdl.losses))
        following = node.variations[0]
        played = uci_of(board, following.move)
        best = played if best_move == "played" else None
        rows.append(row_of(SCHEMA, game_id, len(rows), board.fen(), played, best, *values))
        board.push(following.move)
        node = following
    return rows


def read_pgn(stream: TextIO, name: str, *, best_move: BestMove, counts: PgnCounts) -> Iterator[list[Row]]:
    """The games of a PGN stream that are standard chess, whole and legal. `name` begins their ids: `name_0`, …"""
    require_python_chess("converting PGN")
    import chess.pgn

    class Builder(chess.pgn.GameBuilder[Any]):
        """python-chess's own would also log what is wrong with a game, once a move."""

        def handle_error(self, error: Exception) -> None:
            self.game.errors.append(error)

    number = 0
    while (game := chess.pgn.read_game(stream, Visitor=Builder)) is not None:
        number += 1
        if game.headers.get("Variant", "Standard").lower() not in ("standard", "from position", "chess"):
            counts.skipped[VARIANT] += 1
        elif game.errors:
            counts.skipped[UNREADABLE] += 1
        elif not game.variations:
            counts.skipped[NO_MOVES] += 1
        else:
            try:
                rows = game_rows(game, f"{name}_{number - 1}", best_move=best_move)
            except (OverflowError, ValueError):  # of numbers in the FEN that it begins with
                counts.skipped[UNREADABLE] += 1
            else:
                yield rows


def convert_pgn(
    files: Iterable[Path], out: Path, *, best_move: BestMove = "played", games_per_file: int = 10_000
) -> PgnCounts:
    """Writes the games of PGN files as `games_00000.parquet`, … in the folder `out`, which must hold none yet.

    `best_move` "played" takes the move that was played for the best one (a model learns to play as these players do),
    "none" leaves it out (a model learns boards and values alone). Raises SourceError for a file that cannot be read,
    ChessError where no game could be converted.
    """
    files = list(files)
    if games_per_file < 1:
        raise ChessError(f"{games_per_file} games a file: give 1 or more")
    if standing := sorted(out.glob("*.parquet")):
        raise ChessError("the folder holds Parquet files already", where=str(standing[0]), remedy="give a new --out")
    counts = PgnCounts()
    games = _all_games(files, best_move, counts)
    for number in itertools.count():
        if not (batch := list(itertools.islice(games, games_per_file))):
            break
        rows = list(itertools.chain.from_iterable(batch))
        counts.games += len(batch)
        counts.rows += len(rows)
        counts.rows_with_values += sum(row["win"] is not None for row in rows)
        write_rows(rows, out / f"games_{number:05d}.parquet")
    if not counts.games:
        left_out = ", ".join(f"{number} {reason}" for reason, number in counts.skipped.items()) or "there are none"
        raise ChessError(f"no game could be converted ({left_out})", where=", ".join(map(str, files)))
    return counts


def _all_games(files: list[Path], best_move: BestMove, counts: PgnCounts) -> Iterator[list[Row]]:
    for path in files:
        try:
            with path.open(encoding="utf-8-sig", errors="replace") as stream:
                yield from read_pgn(stream, path.stem, best_move=best_move, counts=counts)
        except OSError as fault:
            raise SourceError(f"the file cannot be read: {fault.strerror}", where=str(path)) from None


def write_rows(rows: list[Row], path: Path, schema: pa.Schema = SCHEMA) -> None:
    """Writes rows as one Parquet file, whole or not at all. Raises ConflictError where another one stands."""
    temporary = temporary_beside(path)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary)
    fsync_file(temporary)
    publish(temporary, path, sha256_file(temporary))
