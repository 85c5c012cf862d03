"""Samples in readable form: boards as pictures or text, and every token with its targets.

In: a sample of the datasets, as tensors or arrays. Out: `SampleView`; lines for a terminal, a self-contained HTML page.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from spanloom.families.chess.encoding.python_chess import board_from_tokens, python_chess
from spanloom.families.chess.encoding.vocabulary import (
    BOARD_LENGTH,
    BOARD_TOKENS,
    D_VALUE,
    ID_TO_INDEX,
    MOVE_COUNT,
    MOVES,
    PAD,
    PIECE_SYMBOLS,
    TOKENS,
    WL_VALUE,
)
from spanloom.families.chess.options import DrawOptions
from spanloom.report.pages import html

START_POS_ID = TOKENS.index("start_pos")
_SIZE = 180
"""The size of a board's picture, in pixels."""


@dataclass(frozen=True, kw_only=True)
class TokenView:
    """One position: its token, and the targets of the board head and the move head. A missing target is empty.

    `value`: wl_targets at a wl_value token, d_targets at a d_value token, followed by ? if not valid; otherwise empty.
    `masks`: the names of the masks that are set.
    """

    position: int
    token: str
    value: str
    board_target: str
    move_target: str
    masks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BoardView:
    """A board of the sample, and the tokens after it up to the next. `board`: uint8 [68], or less at the sample's end.

    `first`: the position of its first token. `first` and `board` are None for the tokens before the first board.
    """

    first: int | None
    board: npt.NDArray[np.uint8] | None
    tokens: tuple[TokenView, ...]

    @property
    def played(self) -> str | None:
        """The move made on the board: the first move token after it, or None."""
        return next((view.token for view in self._before_end_var() if view.token in MOVES), None)

    @property
    def best(self) -> str | None:
        """The target move on the board: the move target of the first position that has one, or None."""
        return next((view.move_target for view in self._before_end_var() if view.move_target), None)

    def _before_end_var(self) -> Iterator[TokenView]:
        """The tokens up to an end_var: moves after it are made on the root board, not on the line's last board."""
        return itertools.takewhile(lambda view: view.token != "end_var", self.tokens)


@dataclass(frozen=True, kw_only=True)
class SampleView:
    """A sample: the first `length` positions are tokens, the rest is padding."""

    title: str
    length: int
    boards: tuple[BoardView, ...]


def drawn_views(place: Path, drawn: DrawOptions, *, thinking: bool = False) -> list[SampleView]:
    """Draws samples from a folder or a root, in the same way as the datasets do."""
    from spanloom.families.chess.loader import ChessIterableDataset, FinetuneIterableDataset  # torch takes a second

    length, seed, split = drawn.max_seq_len, drawn.seed, drawn.split
    samples = (
        FinetuneIterableDataset(None, place, length, seed=seed, split=split)
        if thinking
        else ChessIterableDataset(place, length, skip_board_prob=drawn.skip_board_prob, seed=seed, split=split)
    )
    return [
        view_sample(sample, f"sample {number} of seed {seed}")
        for number, sample in enumerate(itertools.islice(samples, drawn.count), start=1)
    ]


def view_sample(sample: Mapping[str, Any], title: str) -> SampleView:
    """The view of a dataset's sample. The last token of each board is also listed, since it has targets."""
    arrays = {name: np.asarray(value) for name, value in sample.items()}
    ids = arrays["input_ids"]
    length = int(np.count_nonzero(ids != PAD))
    blocks = arrays["block_id"][:length]
    begins = [at for at in range(length) if ids[at] == START_POS_ID and (at == 0 or blocks[at] != blocks[at - 1])]
    shown: list[BoardView] = []
    edges = [*begins, length]
    if begins[:1] != [0]:
        shown.append(_board_view(arrays, None, 0, edges[0]))
    for begin, end in zip(begins, edges[1:], strict=True):
        shown.append(_board_view(arrays, begin, min(begin + BOARD_LENGTH, end), end))
    return SampleView(title=title, length=length, boards=tuple(shown))


def _board_view(arrays: Mapping[str, npt.NDArray[Any]], first: int | None, behind: int, end: int) -> BoardView:
    start = behind if first is None else max(first, behind - 1)
    board = None if first is None else ID_TO_INDEX[arrays["input_ids"][first:behind]].astype(np.uint8)
    return BoardView(
        first=first, board=board, tokens=tuple(_token_view(arrays, position) for position in range(start, end))
    )


def _token_view(arrays: Mapping[str, npt.NDArray[Any]], position: int) -> TokenView:
    token = int(arrays["input_ids"][position])
    target, move = int(arrays["board_target_ids"][position]), int(arrays["move_target_ids"][position])
    value = ""
    if token in (WL_VALUE, D_VALUE):
        number = arrays["wl_targets" if token == WL_VALUE else "d_targets"][position]
        value = f"{number:+.3f}" if token == WL_VALUE else f"{number:.3f}"
        value += "" if arrays["wdl_valid"][position] else "?"
    masks = ("move_mask", "thinking_move_mask", "continue_var_mask", "new_variation_mask")
    return TokenView(
        position=position,
        token=TOKENS[token],
        value=value,
        board_target="" if target < 0 else BOARD_TOKENS[target],
        move_target=MOVES[move] if 0 <= move < MOVE_COUNT else "",
        masks=tuple(name for name in masks if name in arrays and arrays[name][position]),
    )


def text_board(board: npt.NDArray[np.uint8]) -> str:
    """A board as eight lines, from a8 to h1, then side to move and castling rights. Missing squares are blank."""
    squares = board[1:65]
    lines = []
    for rank in range(7, -1, -1):
        row = [
            PIECE_SYMBOLS.get(int(squares[at]), "·") if at < len(squares) else " "
            for at in range(8 * rank, 8 * rank + 8)
        ]
        lines.append(f"{rank + 1}  {' '.join(row)}")
    lines.append("   a b c d e f g h")
    if len(board) == BOARD_LENGTH:
        lines.append(f"   {BOARD_TOKENS[board[67]]}, {BOARD_TOKENS[board[66]]}".replace("_", " "))
    return "\n".join(lines)


def token_line(view: TokenView) -> str:
    """`70  d_value  0.330  → start_pos`: position, token, value, and after the arrow the targets."""
    targets = " + ".join(filter(None, (view.board_target, view.move_target)))
    parts = [f"{view.position:5d}", view.token, view.value]
    parts += [targets and f"→ {targets}", f"[{', '.join(view.masks)}]" if view.masks else ""]
    return "  ".join(filter(None, parts))


def text_lines(view: SampleView) -> Iterator[str]:
    """Yields the lines of a sample for a terminal."""
    yield f"{view.title}: {view.length} tokens, {sum(board.board is not None for board in view.boards)} boards"
    for board in view.boards:
        yield ""
        if board.board is not None:
            yield f"board at {board.first}"
            yield text_board(board.board)
        for token in board.tokens:
            yield token_line(token)


def picture(board: npt.NDArray[np.uint8], played: str | None, best: str | None) -> str | None:
    """A board as SVG by python-chess, with a grey arrow for the played move and a green one for a different best move.

    None if python-chess is not installed or the board is incomplete.
    """
    chess = python_chess()
    if chess is None or len(board) < BOARD_LENGTH:
        return None
    import chess.svg as svg

    arrows = [
        svg.Arrow(chess.parse_square(move[:2]), chess.parse_square(move[2:4]), color=color)
        for move, color in ((played, "#888888"), (best if best != played else None, "#15781b"))
        if move
    ]
    return str(svg.board(board_from_tokens(chess, board), arrows=arrows, size=_SIZE, coordinates=False))


LEGEND = (
    "Each row is a position of the sequence: its token and value, what the board head and the move head are to predict "
    "there, and the masks that are set. Grey arrow: the move played; green: the best one, where it is another."
)


def page(views: Sequence[SampleView], title: str) -> str:
    """A self-contained HTML page: a picture of each board, with a table of its tokens."""
    return html.page(
        "pictures.html.j2",
        style="pictures.css",
        inline_styles=True,
        title=title,
        legend=LEGEND,
        columns=("", "token", "value", "board target", "move target", "masks"),
        sections=[(f"{view.title}: {view.length} tokens", [_figure(board) for board in view.boards]) for view in views],
    )


def _figure(board: BoardView) -> dict[str, Any]:
    drawn = None if board.board is None else picture(board.board, board.played, board.best)
    return {
        "picture": None if drawn is None else Markup(drawn),
        "text": "" if board.board is None else text_board(board.board),
        "rows": [
            (view.position, view.token, view.value, view.board_target, view.move_target, ", ".join(view.masks))
            for view in board.tokens
        ],
    }
