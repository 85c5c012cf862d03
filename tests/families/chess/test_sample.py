"""Games of our own making: the same each time, legal, and clean."""

from pathlib import Path

from spanloom.families.chess.sample import sample_games, sample_thinking, write_sample
from spanloom.families.chess.verify.games import Checks, validate_folder


def test_the_sample_is_legal_and_clean_in_both_schemas(tmp_path: Path) -> None:
    done = write_sample(tmp_path, games=8, thinking=8)
    assert (done["games"], done["thinking_rows"]) == (8, 8)
    thinking = validate_folder(tmp_path / "thinking", Checks(legal=True))
    assert thinking.clean, thinking.findings
    report = validate_folder(tmp_path / "games", Checks(legal=True))
    assert report.clean, report.findings
    assert report.checked["games"] == 8
    assert report.checked["plies"] == done["plies"]


def test_fewer_games_are_the_first_ones() -> None:
    assert sample_games(4) == sample_games()[:4]
    assert sample_thinking(3) == sample_thinking()[:3]
    assert (len(sample_games()), len(sample_thinking())) == (60, 60)


def test_famous_games_are_whole() -> None:
    """Morphy v Duke of Brunswick and Count Isouard, Anderssen v Kieseritzky and v Dufresne end in mate."""
    mates = {"opera_1858": ("d1d8", 33), "immortal_1851": ("d6e7", 45), "evergreen_1852": ("a3e7", 47)}
    for (name, (mate, plies)), rows in zip(mates.items(), sample_games(3), strict=True):
        assert {row["game_id"] for row in rows} == {name}
        assert (rows[-1]["played_move"], len(rows)) == (mate, plies)
