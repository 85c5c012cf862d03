"""Games of our own making: the same each time, legal, and clean."""

from pathlib import Path

from spanloom.families.chess.sample import FAMOUS, sample_games, sample_thinking, write_sample
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


def test_the_same_seed_gives_the_same_games() -> None:
    assert list(sample_games(4)) == list(sample_games(5))[:4]
    assert list(sample_games(5, seed=1))[4] != list(sample_games(5))[4]
    assert list(sample_thinking(3)) == list(sample_thinking(4))[:3]


def test_famous_games_are_whole() -> None:
    for (name, moves), rows in zip(FAMOUS.items(), sample_games(len(FAMOUS)), strict=True):
        assert {row["game_id"] for row in rows} == {name}
        assert len(rows) == len(moves.split())
