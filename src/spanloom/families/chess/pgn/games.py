"""The text of games → rows of the pretraining schema, or the reason for leaving out a game.

In: a run of whole games, and the filter. Out: `ReadGames`: columns of all rows, and `Skipped` games with their lines.
This module imports python-chess, so import it only after `require_python_chess`.

Variations are skipped without parsing their moves.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

import chess
import chess.pgn
import pyarrow as pa

from spanloom.families.chess.pgn.filters import BestMove, GameFilter
from spanloom.families.chess.pgn.positions import FenWriter, move_of, spelled
from spanloom.families.chess.pgn.schema import SCHEMA
from spanloom.families.chess.pgn.text import GameText
from spanloom.families.chess.pgn.values import values_of

VARIANT, CHESS960 = "another variant", "Chess960"
NO_MOVES, UNREADABLE, NULL_MOVE = "no moves", "moves that cannot be read", "null moves"
RATING, RESULT, TIME_CONTROL, NO_VALUES = "rating", "result", "time control", "no values"
_STANDARD = ("standard", "from position", "chess")
_FISCHER = ("960", "fischer", "freestyle")


@dataclass(frozen=True, slots=True)
class Skipped:
    """A game that is left out. `game`: its number in the run, from 0; `line`: its line in the file.

    `has_tags`: whether it has any header. A text with neither headers nor moves is not a game.
    """

    game: int
    line: int
    reason: str
    detail: str
    has_tags: bool


@dataclass(kw_only=True)
class ReadGames:
    """The result of a run. `games`: number of games; `kept`, `plies`: number and row count of each game that is used;
    `rows`: the rows of these games, without the ids."""

    games: int = 0
    kept: list[int] = field(default_factory=list)
    plies: list[int] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    rows: pa.RecordBatch | None = None


class _Lines:
    """A text that counts its lines. python-chess calls only `readline` of a file."""

    def __init__(self, text: str) -> None:
        self._text, self.line = io.StringIO(text), 0

    def readline(self) -> str:
        self.line += 1
        return self._text.readline()


class _Reader(chess.pgn.BaseVisitor[bool]):
    """Collects one game: its moves, the positions before them, the comments after them."""

    def __init__(self, source: _Lines, wanted: GameFilter) -> None:
        self._source, self._wanted, self._writer = source, wanted, FenWriter()

    def begin_game(self) -> None:
        self.line = self._source.line
        self.headers: dict[str, str] = {}
        self.reason: str | None = None
        self.detail = ""
        self.fens: list[str] = []
        self.moves: list[str] = []
        self.comments: list[str] = [""]
        self.first_turn, self.first_ply = chess.WHITE, 0

    def visit_header(self, tagname: str, tagvalue: str) -> None:
        self.headers[tagname] = tagvalue

    def end_headers(self) -> Any:
        reason = _unwanted(self.headers, self._wanted)
        if reason is not None:
            self.reason, self.detail = reason
            return chess.pgn.SKIP
        return None

    def begin_variation(self) -> Any:
        return chess.pgn.SKIP

    def visit_comment(self, comment: str) -> None:
        before = self.comments[-1]
        self.comments[-1] = f"{before} {comment}" if before and comment else before or comment

    def begin_parse_san(self, board: chess.Board, san: str) -> Any:
        if self.reason is not None:
            return chess.pgn.SKIP
        if board.chess960:
            self.reason, self.detail = CHESS960, "castling rights of the FEN"
            return chess.pgn.SKIP
        if not self.moves:
            self.first_turn, self.first_ply = board.turn, board.ply()
        try:
            move = move_of(board, san)
        except ValueError as fault:
            self.reason, self.detail = UNREADABLE, str(fault)
            return chess.pgn.SKIP
        if not move:
            self.reason, self.detail = NULL_MOVE, f"move {len(self.moves) // 2 + 1}"
            return chess.pgn.SKIP
        self.fens.append(self._writer.fen(board))
        self.moves.append(spelled(board, move))
        self.comments.append("")
        board.push(move)
        return chess.pgn.SKIP

    def handle_error(self, error: Exception) -> None:
        self.reason, self.detail = self.reason or UNREADABLE, self.detail or str(error)

    def result(self) -> bool:
        return True


def _unwanted(headers: dict[str, str], wanted: GameFilter) -> tuple[str, str] | None:
    """The reason and detail for leaving out a game by its headers; None if it passes the filter."""
    variant = headers.get("Variant", "Standard").lower()
    if any(name in variant for name in _FISCHER):
        return CHESS960, headers["Variant"]
    if variant not in _STANDARD:
        return VARIANT, headers["Variant"]
    if wanted.results and headers.get("Result", "*") not in wanted.results:
        return RESULT, headers.get("Result", "*")
    if wanted.min_rating is not None:
        for tag in ("WhiteElo", "BlackElo"):
            value = headers.get(tag, "")
            if not value.isdecimal() or int(value) < wanted.min_rating:
                return RATING, f"{tag} {value or 'is missing'}"
    if wanted.min_seconds is not None or wanted.max_seconds is not None:
        control = headers.get("TimeControl", "")
        seconds = estimated_seconds(control)
        least, most = wanted.min_seconds or 0, wanted.max_seconds
        if seconds is None or seconds < least or (most is not None and seconds > most):
            return TIME_CONTROL, control or "is missing"
    return None


def estimated_seconds(control: str) -> float | None:
    """`300+3` → 420.0; None for a text without the time of a whole game, such as `-` and `40/60`."""
    base, _, increment = control.partition("+")
    try:
        return float(base) + 40 * float(increment or 0)
    except ValueError:
        return None


def read_games(run: GameText, best_move: BestMove, wanted: GameFilter) -> ReadGames:
    """Reads the games of a run. It keeps those that are standard chess, readable and legal, and pass the filter."""
    source, games = _Lines(run.text), ReadGames()
    reader = _Reader(source, wanted)
    fens: list[str] = []
    moves: list[str] = []
    values: list[Sequence[float | None]] = []
    while chess.pgn.read_game(cast(TextIO, source), Visitor=lambda: reader):
        number = games.games
        games.games += 1
        of_game: list[Sequence[float | None]] = []
        if reader.reason is None and not reader.moves:
            reader.reason = NO_MOVES
        if reader.reason is None:
            try:
                of_game = _values(reader)
            except (OverflowError, ValueError) as fault:  # from numbers in the FEN of the first position
                reader.reason, reader.detail = UNREADABLE, str(fault)
        if reader.reason is None and wanted.with_values and all(value[0] is None for value in of_game):
            reader.reason = NO_VALUES
        if reader.reason is not None:
            line = run.line + reader.line - 1
            games.skipped.append(Skipped(number, line, reader.reason, reader.detail, bool(reader.headers)))
        else:
            games.kept.append(number)
            games.plies.append(len(reader.moves))
            fens += reader.fens
            moves += reader.moves
            values += of_game
    plies = [ply for count in games.plies for ply in range(count)]
    columns = [plies, fens, moves, moves if best_move == "played" else [None] * len(moves), *_columns(values)]
    fields = list(SCHEMA)[1:]
    arrays = [pa.array(column, each.type) for column, each in zip(columns, fields, strict=True)]
    games.rows = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    return games


def _values(reader: _Reader) -> list[Sequence[float | None]]:
    """Win, draw and loss of each position before a move, from the comment after the move that led to it."""
    nothing = (None, None, None)
    values: list[Sequence[float | None]] = []
    turn = reader.first_turn
    for number in range(len(reader.moves)):
        moved = None if not number else not turn
        comment = reader.comments[number]
        judged = values_of(comment, moved, turn, reader.first_ply + number) if comment else None
        values.append(judged or nothing)
        turn = not turn
    return values


def _columns(values: list[Sequence[float | None]]) -> list[list[float | None]]:
    return [[value[place] for value in values] for place in range(3)]
