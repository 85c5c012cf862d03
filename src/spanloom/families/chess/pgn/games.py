"""The tokens of games → rows of the pretraining schema, or the reason for leaving out a game.

In: a run of whole games, and the filter. Out: `ReadGames`: columns of all rows, and `Skipped` games with their lines.

A game begins with its tags, or with its first token, and ends with its result or before the next tags; empty lines
mean nothing. Tags that are repeated after an empty line are the next game's. Only the main line is read. Each of its
tokens is a legal move, a move number, a result, a NAG, an annotation, a comment, a variation or an escape, or the game
is left out.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from spanloom.families.chess.options import BestMove, GameFilter
from spanloom.families.chess.pgn.notation import ENGLISH, FOREIGN, Notation, is_foreign
from spanloom.families.chess.pgn.position import Position, PositionError
from spanloom.families.chess.pgn.schema import SCHEMA
from spanloom.families.chess.pgn.text import GameText
from spanloom.families.chess.pgn.tokens import begins_tags, is_closed, tag_of, token_places, tokens_of
from spanloom.families.chess.pgn.values import UnclearEvaluation, Unit, Values, may_evaluate, values_of

VARIANT, CHESS960 = "another variant", "Chess960"
NO_MOVES, UNREADABLE, NULL_MOVE = "no moves", "moves that cannot be read", "null moves"
TAGS, NUMBERS = "tags that cannot be read", "moves that begin later"
LETTERS, OPEN_COMMENT, OPEN_VARIATION = "piece letters of another language", "an open comment", "an open variation"
RATING, RESULT, TIME_CONTROL, NO_VALUES = "rating", "result", "time control", "no values"
TEXT = "text that is no game"
_STANDARD = ("standard", "from position", "chess", "classical", "normal")
_FISCHER = ("960", "fischer", "freestyle")
_RESULTS = frozenset(
    ("*", "1/2", "½", *(f"{white}{dash}{black}" for white, black in ("10", "01", ("1/2",) * 2, "½½") for dash in "-–:"))
)
_NULL_MOVES = frozenset(("--", "Z0", "0000", "@@@@", "null", "pass"))
_BEFORE_NO_SQUARE = frozenset(("N", "D"))
"""Novelty and diagram. Before a square they could be the letter of a piece."""
_ANNOTATIONS = frozenset(
    (
        *("!", "?", "!!", "??", "!?", "?!", "+", "++", "#", "=", "+=", "=+", "+/=", "=/+", "+-", "-+", "+/-", "-/+"),
        *("±", "∓", "⩲", "⩱", "∞", "□", "⊕", "⟳", "→", "↑", "⇆", "∆", "⌓", "e.p.", "ep", "e.p", "N", "D"),
    )
)
_NUMBER = re.compile(r"\d*[.…]*")
_SQUARE = re.compile(r"[a-h]?[1-8]?[-x:]?[a-h][1-8]\S*")
_EMPTY_LINE = re.compile(r"\n[ \t]*\n")
_DECISIVE = ("fen", "setup", "variant")
"""Tags that a game cannot have twice with two values."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A game that is left out. `game`: its number in the run, from 0, None for a text that is no game; `line`: its line
    in the file."""

    game: int | None
    line: int
    reason: str
    detail: str


@dataclass(kw_only=True)
class ReadGames:
    """The result of a run. `games`: number of games; `kept`, `plies`: number and row count of each game that is used;
    `foreign`: the language of each game with other piece letters; `unclear`: evaluations left out of used games;
    `rows`: the rows of these games, without the ids."""

    games: int = 0
    kept: list[int] = field(default_factory=list)
    plies: list[int] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    unclear: int = 0
    rows: pa.RecordBatch | None = None


class _LeftOut(Exception):
    """Why a game is left out. `token`: the number of the token at fault, None for the whole game."""

    def __init__(self, reason: str, detail: str, token: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.detail, self.token = reason, detail, token


@dataclass(slots=True)
class _MainLine:
    """The positions and moves of a game; its comments that may hold a value, by the number of moves before them; one
    past its last token."""

    fens: list[str] = field(default_factory=list)
    moves: list[str] = field(default_factory=list)
    comments: dict[int, str] = field(default_factory=dict)
    end: int = 0


class _Run:
    """The tokens of a run, and where each of them is."""

    def __init__(self, run: GameText) -> None:
        self.run = run
        self.tokens = tokens_of(run.text)

    @cached_property
    def _places(self) -> list[int]:
        return token_places(self.run.text)

    @cached_property
    def _line_ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.run.text)]

    def line(self, token: int) -> int:
        """The line of a token in the file, from 1."""
        return self.run.line + bisect_left(self._line_ends, self._places[token])

    def _after_empty_line(self, token: int) -> bool:
        gap = self._places[token - 1] + len(self.tokens[token - 1][1])
        return _EMPTY_LINE.search(self.run.text, gap, self._places[token]) is not None

    def tags(self, at: int) -> tuple[dict[str, str], int, _LeftOut | None]:
        """The tags of the game that begins at a token; the first token after them that is no comment; a fault."""
        tags: dict[str, str] = {}
        fault: _LeftOut | None = None
        for number in range(at, len(self.tokens)):
            moves, token = self.tokens[number]
            kind = token[:1]
            if moves or kind not in ("[", "{", ";", "%", "") or token == "[" or token == "%":
                return tags, number, fault
            if kind == "{" and not is_closed(token):
                fault = fault or _LeftOut(OPEN_COMMENT, _short(token), number)
                if not tags and number + 1 < len(self.tokens) and begins_tags(self.tokens[number + 1][1]):
                    return tags, number + 1, fault  # it is no part of the game with these tags
            if kind != "[":
                continue
            tag = tag_of(token)
            if tag is None:
                fault = fault or _LeftOut(TAGS, _short(token), number)
                continue
            name, value = tag
            if name in tags:
                if self._after_empty_line(number):
                    return tags, number, fault
                if name in _DECISIVE and tags[name] != value:
                    fault = fault or _LeftOut(TAGS, f"{name} twice: {_short(token)}", number)
            tags[name] = value
        return tags, len(self.tokens), fault

    def end(self, at: int) -> int:
        """One past the last token of the game with this token in its moves: past its result, or at the next tags."""
        depth = 0
        for number in range(at, len(self.tokens)):
            token = self.tokens[number][1]
            if token in _RESULTS and not depth:
                return number + 1
            if begins_tags(token):
                return number
            depth = max(0, depth + (token == "(") - (token == ")"))
        return len(self.tokens)

    def words(self, at: int) -> list[str]:
        """The tokens of the game's moves from a token on, without those of variations."""
        depth, words = 0, []
        for _, token in self.tokens[at : self.end(at)]:
            depth = max(0, depth + (token == "(") - (token == ")"))
            if not depth:
                words.append(token)
        return words

    def main_line(self, at: int, position: Position, notation: Notation) -> _MainLine:
        """Plays the moves from a token on. Raises _LeftOut for the first token that is not understood."""
        line = _MainLine()
        fens, moves = line.fens, line.moves
        known = notation.get
        play, fen = position.play, position.fen
        tokens, number, count = self.tokens, at, len(self.tokens)
        while number < count:
            token = tokens[number][1]
            move = known(token)
            if move is None:
                kind = token[:1]
                if kind in ("{", ";"):
                    if kind == "{" and not is_closed(token):
                        raise _LeftOut(OPEN_COMMENT, _short(token), number)
                    if may_evaluate(token):
                        text = token[1:-1] if kind == "{" else token[1:]
                        before = line.comments.get(len(moves))
                        line.comments[len(moves)] = f"{before} {text}" if before else text
                elif kind == "(":
                    number = self._past_variation(number)
                elif token in _RESULTS:
                    number += 1
                    break
                elif begins_tags(token):
                    break
                elif not ((kind in "$%" and len(token) > 1) or self._annotates(number)):
                    if token in _NULL_MOVES:
                        raise _LeftOut(NULL_MOVE, _short(token), number)
                    move = notation[token]
                    if move is None:
                        raise _LeftOut(UNREADABLE, f"{_short(token)} is no move", number)
            if move is not None:
                before_move = fen()
                played = play(move)
                if played is None:
                    raise _LeftOut(UNREADABLE, f"{_short(token)} is not one legal move in {before_move}", number)
                fens.append(before_move)
                moves.append(played)
            number += 1
        line.end = number
        return line

    def _past_variation(self, at: int) -> int:
        """The token that closes the variation which opens at a token."""
        depth = 0
        for number in range(at, len(self.tokens)):
            token = self.tokens[number][1]
            kind = token[:1]
            if kind == "(":
                depth += 1
            elif kind == ")":
                depth -= 1
                if not depth:
                    return number
            elif kind == "{" and not is_closed(token):
                raise _LeftOut(OPEN_COMMENT, _short(token), number)
            elif begins_tags(token):
                break
        raise _LeftOut(OPEN_VARIATION, "no ) closes it", at)

    def _annotates(self, number: int) -> bool:
        """Whether a token only annotates: a bare move number, a sign such as `+-`, `N` or `D` where it is no piece."""
        token = self.tokens[number][1]
        if token in _ANNOTATIONS:
            following = self.tokens[number + 1] if number + 1 < len(self.tokens) else ("", "")
            return token not in _BEFORE_NO_SQUARE or bool(following[0]) or not _SQUARE.fullmatch(following[1])
        return _NUMBER.fullmatch(token) is not None


def _short(token: str) -> str:
    return repr(token if len(token) <= 40 else f"{token[:40]}…")


def read_games(run: GameText, best_move: BestMove, wanted: GameFilter, unit: Unit) -> ReadGames:
    """Reads the games of a run. It keeps those that are standard chess, readable and legal, and pass the filter."""
    source, games = _Run(run), ReadGames()
    fens: list[str] = []
    moves: list[str] = []
    values: list[Values | tuple[None, None, None]] = []
    at = 0
    while at < len(source.tokens):
        begin = at
        tags, at, fault = source.tags(at)
        if at == len(source.tokens) and not tags and fault is None:
            break  # comments alone
        first, game, reason = at, games.games, None
        try:
            if fault is not None:
                raise fault
            position = _first_position(source, at, tags, wanted)
            turn, ply = position.white, position.ply
            line, notation = _played(source, at, position, tags.get("fen"))
            at = line.end
            if not line.moves:
                raise _LeftOut(NO_MOVES, "")
            of_game, unclear = _values(line, turn, ply, unit)
            if wanted.with_values and all(value[0] is None for value in of_game):
                raise _LeftOut(NO_VALUES, "")
        except _LeftOut as left_out:
            reason = left_out
            at = max(at, source.end(first))
        if reason is None:
            games.kept.append(game)
            games.plies.append(len(line.moves))
            games.unclear += unclear
            if notation is not ENGLISH:
                games.foreign.append(notation.name)
            fens += line.fens
            moves += line.moves
            values += of_game
        else:
            words = [token for number, token in source.tokens[first:at] if not _NUMBER.fullmatch(token)]
            is_text = not tags and not any(t in _RESULTS or ENGLISH[t] or is_foreign(t) for t in words)
            detail = reason.detail
            if reason.token is not None:
                detail += f", line {source.line(reason.token)}"
            games.skipped.append(
                Skipped(None if is_text else game, source.line(begin), TEXT if is_text else reason.reason, detail)
            )
            games.games -= is_text
        games.games += 1
    plies = [ply for count in games.plies for ply in range(count)]
    best = moves if best_move == "played" else [None] * len(moves)
    columns = [plies, fens, moves, best, *([value[place] for value in values] for place in range(3))]
    fields = list(SCHEMA)[1:]
    arrays = [pa.array(column, each.type) for column, each in zip(columns, fields, strict=True)]
    games.rows = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    return games


def _first_position(source: _Run, at: int, tags: dict[str, str], wanted: GameFilter) -> Position:
    """The position before the first move of the game whose moves begin at a token. Raises _LeftOut."""
    if (unwanted := _unwanted(tags, wanted)) is not None:
        raise unwanted
    fen = tags.get("fen")
    if fen is not None:
        try:
            return Position(fen)
        except PositionError as fault:
            raise _LeftOut(CHESS960 if fault.chess960 else TAGS, str(fault)[:200]) from None
    if tags.get("setup", "0").strip() == "1":
        raise _LeftOut(TAGS, "SetUp is 1, and there is no FEN")
    for number in range(at, len(source.tokens)):
        before, token = source.tokens[number]
        if before or token[:1] not in ("{", ";", "%"):
            begins = before or (token if _NUMBER.fullmatch(token) else "")
            digits = begins[: len(begins) - len(begins.lstrip("0123456789"))]
            if digits not in ("", "1") or begins.count(".") + 3 * begins.count("…") >= 3:
                # The moves before these are missing: from the first position they would be another game.
                raise _LeftOut(NUMBERS, f"{_short(begins.strip())} without a FEN", number)
            break
    return Position()


def _played(source: _Run, at: int, position: Position, fen: str | None) -> tuple[_MainLine, Notation]:
    """The main line whose moves begin at a token, and the notation that they are in. Raises _LeftOut."""
    try:
        return source.main_line(at, position, ENGLISH), ENGLISH
    except _LeftOut as fault:
        if fault.reason != UNREADABLE or not any(is_foreign(token) for token in source.words(at)):
            raise
        english = fault
    lines: dict[tuple[str, ...], tuple[_MainLine, Notation]] = {}
    for notation in FOREIGN:
        try:
            line = source.main_line(at, Position() if fen is None else Position(fen), notation)
        except _LeftOut:
            continue
        lines.setdefault(tuple(line.moves), (line, notation))
    if len(lines) > 1:
        names = "; ".join(notation.name for _, notation in lines.values())
        raise _LeftOut(LETTERS, f"legal, and different, in several: {names}", english.token)
    if not lines:
        raise english
    return next(iter(lines.values()))


def _unwanted(tags: dict[str, str], wanted: GameFilter) -> _LeftOut | None:
    """Why a game is left out by its tags; None if it passes the filter."""
    given = tags.get("variant", "Standard")
    variant = given.strip().lower()
    if any(name in variant for name in _FISCHER):
        return _LeftOut(CHESS960, given)
    if variant not in _STANDARD:
        return _LeftOut(VARIANT, given)
    if wanted.results and tags.get("result", "*") not in wanted.results:
        return _LeftOut(RESULT, tags.get("result", "*"))
    if wanted.min_rating is not None:
        for tag in ("WhiteElo", "BlackElo"):
            value = tags.get(tag.lower(), "")
            if not value.isdecimal() or len(value) > 9 or int(value) < wanted.min_rating:
                return _LeftOut(RATING, f"{tag} {value or 'is missing'}")
    if wanted.min_seconds is not None or wanted.max_seconds is not None:
        control = tags.get("timecontrol", "")
        seconds = estimated_seconds(control)
        least, most = wanted.min_seconds or 0, wanted.max_seconds
        if seconds is None or seconds < least or (most is not None and seconds > most):
            return _LeftOut(TIME_CONTROL, control or "is missing")
    return None


def estimated_seconds(control: str) -> float | None:
    """`300+3` → 420.0; None for a text without the time of a whole game, such as `-` and `40/60`."""
    base, _, increment = control.partition("+")
    try:
        return float(base) + 40 * float(increment or 0)
    except ValueError:
        return None


def _values(line: _MainLine, turn: bool, ply: int, unit: Unit) -> tuple[list[Values | tuple[None, None, None]], int]:
    """Win, draw and loss of each position before a move, from the comment after the move that led to it; and how many
    evaluations are unclear. `turn`, `ply`: of the first position."""
    values: list[Values | tuple[None, None, None]] = [(None, None, None)] * len(line.moves)
    unclear = 0
    for number, comment in line.comments.items():
        if number < len(values):
            now = turn if number % 2 == 0 else not turn
            try:
                values[number] = (
                    values_of(comment, not now if number else None, now, ply + number, unit) or values[number]
                )
            except UnclearEvaluation:
                unclear += 1
    return values, unclear
