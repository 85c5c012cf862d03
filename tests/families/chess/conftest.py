"""The rules of the chess family worked out on small cases, most of them by running the original."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.cases import cases_of, lines


@pytest.fixture(scope="session")
def chess_cases() -> Path:
    """The folder with `games.jsonl`, `variations.jsonl` and what is expected of them."""
    return cases_of("chess")


@pytest.fixture(scope="session")
def facts(chess_cases: Path) -> dict[str, Any]:
    return dict(json.loads((chess_cases / "facts.json").read_bytes()))


@pytest.fixture(scope="session")
def case_games(chess_cases: Path) -> dict[str, dict[str, Any]]:
    """The cases' games by their ids."""
    return {game["game_id"]: game for game in lines(chess_cases / "games.jsonl")}


@pytest.fixture(scope="session")
def case_variations(chess_cases: Path) -> dict[str, dict[str, Any]]:
    """The cases' thinking rows by their ids."""
    return {row["id"]: row for row in lines(chess_cases / "variations.jsonl")}


@pytest.fixture(scope="session")
def expected_tokens(chess_cases: Path) -> list[dict[str, Any]]:
    return lines(chess_cases / "expected_tokens.jsonl")


@pytest.fixture(scope="session")
def samples_index(chess_cases: Path) -> list[dict[str, Any]]:
    return lines(chess_cases / "samples_index.jsonl")


@pytest.fixture(scope="session")
def expected_variations(chess_cases: Path) -> list[dict[str, Any]]:
    return lines(chess_cases / "expected_variations.jsonl")
