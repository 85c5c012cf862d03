"""Samples as people see them: every token once, with what is to be predicted there; pages that stand alone."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from spanloom.families.chess import inspection
from spanloom.families.chess.encoding.tensors import sample
from spanloom.families.chess.inspection import drawn_views, page, text_board, text_lines, view_sample
from spanloom.families.chess.options import DrawOptions
from support.chess_games import folder_of_games, game_of, played_game, thinking_rows, write_thinking


@pytest.fixture
def view() -> Any:
    rows = played_game("g", 4, 0)
    rows[1]["win"] = None
    game = game_of(rows)
    return rows, view_sample(sample(game, [True, True, False, True], 0, 200), "a game")


def test_boards_and_the_tokens_behind_them(view: Any) -> None:
    rows, shown = view
    assert shown.length == 200
    assert [board.first for board in shown.boards] == [0, 71, 145]
    assert [len(board.tokens) for board in shown.boards] == [4, 7, 1]
    first = shown.boards[0].tokens
    assert [token.token for token in first] == ["white_to_move", rows[0]["played_move"], "wl_value", "d_value"]
    assert (first[0].board_target, first[0].move_target) == ("generic_move", rows[0]["best_move"])
    assert first[0].masks == ("move_mask",)
    assert first[2].value == f"{rows[0]['win'] - rows[0]['loss']:+.3f}"
    assert first[3].value == f"{rows[0]['draw']:.3f}"
    assert shown.boards[1].tokens[2].value.endswith("?"), "win is missing there"
    assert (shown.boards[0].played, shown.boards[0].best) == (rows[0]["played_move"], rows[0]["best_move"])


def test_a_sample_that_begins_without_a_board() -> None:
    game = game_of(played_game("g", 3, 0))
    shown = view_sample(sample(game, [True, False, True], 71, 160), "later")
    assert [board.first for board in shown.boards] == [None, 3]
    assert shown.boards[0].board is None
    assert len(shown.boards[0].tokens) == 3
    assert shown.boards[0].tokens[0].move_target == ""


def test_a_text_board() -> None:
    game = game_of(played_game("g", 1, 0))
    assert text_board(game.boards[0]) == (
        "8  r n b q k b n r\n7  p p p p p p p p\n6  · · · · · · · ·\n5  · · · · · · · ·\n4  · · · · · · · ·\n"
        "3  · · · · · · · ·\n2  P P P P P P P P\n1  R N B Q K B N R\n   a b c d e f g h\n   white to move, KQkq"
    )
    assert text_board(game.boards[0][:10]).splitlines()[6:8] == ["2  P              ", "1  R N B Q K B N R"]


def test_lines_for_a_terminal(view: Any) -> None:
    rows, shown = view
    lines = list(text_lines(shown))
    assert lines[0] == "a game: 200 tokens, 3 boards"
    assert f"   67  white_to_move  → generic_move + {rows[0]['best_move']}  [move_mask]" in lines


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.pictures = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.pictures += tag == "svg"
        self.outside += [
            str(value) for name, value in attrs if name in ("src", "href") and not str(value).startswith("#")
        ]
        assert tag != "script"


def test_the_page_has_pictures_and_needs_nothing_from_outside(view: Any) -> None:
    _, shown = view
    links = _Links()
    links.feed(page([shown], "Samples <of> mine"))
    assert links.outside == []
    assert links.pictures == 2, "the board that was cut off is text"
    assert "Samples &lt;of&gt; mine" in page([shown], "Samples <of> mine")


def test_without_python_chess_boards_are_text(view: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, shown = view
    monkeypatch.setattr(inspection, "python_chess", lambda: None)
    html = page([shown], "t")
    assert "<svg" not in html
    assert "8  r n b q k b n r" in html


def test_samples_are_drawn_as_training_draws_them(tmp_path: Path) -> None:
    folder_of_games(tmp_path / "games", [3])
    write_thinking(tmp_path / "thinking/x.parquet", thinking_rows(3))
    assert len(drawn_views(tmp_path / "games", DrawOptions(count=9))) == 3
    (shown,) = drawn_views(tmp_path / "thinking", DrawOptions(max_seq_len=800), thinking=True)
    masks = {mask for board in shown.boards for token in board.tokens for mask in token.masks}
    assert masks >= {"thinking_move_mask", "move_mask", "new_variation_mask"}
    assert shown.boards[0].played is not None
    ends = [board for board in shown.boards if "end_var" in [token.token for token in board.tokens]]
    assert len(ends) > 1
    assert {(board.played, board.best) for board in ends} == {(None, None)}, "what follows is played on the root board"
    names = [token.token for board in shown.boards for token in board.tokens]
    assert names.count("start_think") == names.count("end_think") == 1
