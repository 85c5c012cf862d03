"""Tables of the games or thinking rows of one file: arrays end to end, and what was left out.

In: what `source` reads of a file, or `prepared` maps. Out: single games and rows; a table of those that are chosen.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from spanloom.families.chess.encoding.draws import KEY_BYTES, Keys
from spanloom.families.chess.encoding.fen import Boards
from spanloom.families.chess.encoding.games import Game, Values
from spanloom.families.chess.encoding.moves import MoveIds
from spanloom.families.chess.encoding.thinking import ThinkingRow
from spanloom.families.chess.encoding.vocabulary import BOARD_LENGTH

WITHOUT = ("null_rows", "best_missing", "best_unknown")
"""The counts of incomplete rows of games; see `GameTable`."""

Kind = Literal["games", "thinking"]


class Column(NamedTuple):
    """An array of a table: its dtype, and the unit that each entry belongs to (`each`).

    `width`: the size of the second dimension; None if there is only one dimension.
    `cuts`: if the array holds offsets, the unit that they index.
    """

    dtype: str
    each: str
    width: int | None = None
    cuts: str | None = None

    def shape(self, count: int) -> tuple[int, ...]:
        """The shape of the array for `count` items, rows, variations or nodes."""
        count += self.cuts is not None
        return (count,) if self.width is None else (count, self.width)

    def joined(self, parts: Iterable[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """The arrays end to end; an empty array for no parts."""
        return np.concatenate([np.empty((0, *self.shape(0)[1:]), self.dtype), *parts])


COLUMNS: dict[Kind, dict[str, Column]] = {
    "games": {
        "offsets": Column("int64", "item", cuts="row"),
        "keys": Column("uint8", "item", KEY_BYTES),
        "boards": Column("uint8", "row", BOARD_LENGTH),
        "played": Column("int16", "row"),
        "best": Column("int16", "row"),
        "values": Column("float64", "row", 3),
        "plies": Column("int64", "row"),
    },
    "thinking": {
        "row_offsets": Column("int64", "item", cuts="variation"),
        "keys": Column("uint8", "item", KEY_BYTES),
        "numbers": Column("int64", "item"),
        "boards": Column("uint8", "item", BOARD_LENGTH),
        "finals": Column("int16", "item"),
        "values": Column("float64", "item", 3),
        "root_moves": Column("int16", "variation"),
        "visits": Column("float64", "variation"),
        "fractions": Column("float64", "variation"),
        "node_offsets": Column("int64", "variation", cuts="node"),
        "node_boards": Column("uint8", "node", BOARD_LENGTH),
        "node_moves": Column("int16", "node"),
        "node_values": Column("float64", "node", 3),
    },
}
"""The arrays of a table by kind, in the order of their files. `GameTable` and `ThinkingTable` describe them."""


@dataclass(frozen=True, kw_only=True)
class Reject:
    """A game or thinking row without a sample, and the location of its fault.

    `game_id`: for a thinking row, its `thinking_id`.
    """

    file: str
    game_id: str
    ply: int | None
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.file}, {self.item}: {self.reason}: {self.detail}"

    @property
    def item(self) -> str:
        return f"game {self.game_id}" + ("" if self.ply is None else f", ply {self.ply}")


@dataclass(frozen=True, kw_only=True)
class GameTable:
    """The usable games of one file, in the order of their first rows; a game's rows are in the order of plies.

    `ids`      the games' ids as text [G]         `offsets`  int64 [G + 1], the first row of each game
    `keys`     uint8 [G, 16], for their draws     `plies`    int64 [N], as numbered in the file
    `boards`   uint8 [N, 68]    `played`, `best`   int16 [N]    `values`   float64 [N, 3]

    `rejects`: the games left out; `rows`: rows read; `null_rows`: rows dropped because they have no game_id;
    `best_missing`, `best_unknown`: plies of usable games with a move but a missing or unknown best_move.
    """

    kind: ClassVar[Kind] = "games"
    file: str
    ids: Sequence[str]
    keys: Keys
    offsets: npt.NDArray[np.int64]
    plies: npt.NDArray[np.int64]
    boards: Boards
    played: MoveIds
    best: MoveIds
    values: Values
    rejects: tuple[Reject, ...]
    rows: int
    null_rows: int = 0
    best_missing: int = 0
    best_unknown: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def game(self, index: int) -> Game:
        rows = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return Game(boards=self.boards[rows], played=self.played[rows], best=self.best[rows], values=self.values[rows])


@dataclass(frozen=True, kw_only=True)
class ThinkingTable:
    """The R usable rows of one file, in order, with their V variations and M nodes end to end.

    `ids`: the root positions' FENs as text [R]; `numbers` int64 [R]: the rows' numbers in the file; `row_offsets`
    int64 [R + 1] and `node_offsets` int64 [V + 1]: the start of each row's variations and of each variation's nodes;
    the other arrays are those of `ThinkingRow`, end to end.
    """

    kind: ClassVar[Kind] = "thinking"
    file: str
    ids: Sequence[str]
    numbers: npt.NDArray[np.int64]
    keys: Keys
    boards: Boards
    finals: MoveIds
    values: Values
    row_offsets: npt.NDArray[np.int64]
    root_moves: MoveIds
    visits: npt.NDArray[np.float64]
    fractions: npt.NDArray[np.float64]
    node_offsets: npt.NDArray[np.int64]
    node_boards: Boards
    node_moves: MoveIds
    node_values: Values
    rejects: tuple[Reject, ...]
    rows: int

    def __len__(self) -> int:
        return len(self.row_offsets) - 1

    def row(self, index: int) -> ThinkingRow:
        variations = slice(int(self.row_offsets[index]), int(self.row_offsets[index + 1]))
        offsets = self.node_offsets[variations.start : variations.stop + 1]
        nodes = slice(int(offsets[0]), int(offsets[-1]))
        return ThinkingRow(
            board=self.boards[index],
            final=int(self.finals[index]),
            values=self.values[index],
            root_moves=self.root_moves[variations],
            visits=self.visits[variations],
            fractions=self.fractions[variations],
            node_offsets=offsets - nodes.start,
            node_boards=self.node_boards[nodes],
            node_moves=self.node_moves[nodes],
            node_values=self.node_values[nodes],
        )


Table = TypeVar("Table", bound="GameTable | ThinkingTable")


def select(table: Table, chosen: npt.NDArray[np.bool_]) -> Table:
    """The table with only the chosen games or rows, bool [N], and without `rejects`."""
    taken = {"item": chosen}
    arrays: dict[str, Any] = {}
    for name, column in COLUMNS[table.kind].items():
        array, kept = getattr(table, name), taken[column.each]
        if column.cuts:
            taken[column.cuts] = np.repeat(kept, np.diff(array))
            arrays[name] = offsets_of(np.diff(array)[kept])
        else:
            arrays[name] = array[kept]
    ids = [name for name, is_chosen in zip(table.ids, chosen.tolist(), strict=True) if is_chosen]
    return replace(table, ids=ids, rejects=(), **arrays)


def offsets_of(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each of some items begins, with the end of the last: int64 [N + 1]."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
