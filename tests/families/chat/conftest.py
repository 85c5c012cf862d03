"""The rules of packed chat worked out on small cases, by hand or by the loader they come from."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.cases import cases_of


@pytest.fixture(scope="session")
def chat_cases() -> Path:
    """The folder with `packing_cases.jsonl` and `generator_cases.jsonl`."""
    return cases_of("chat")


@pytest.fixture(scope="session")
def packing_cases(chat_cases: Path) -> list[dict[str, Any]]:
    return _lines(chat_cases / "packing_cases.jsonl")


@pytest.fixture(scope="session")
def generator_cases(chat_cases: Path) -> list[dict[str, Any]]:
    return _lines(chat_cases / "generator_cases.jsonl")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
