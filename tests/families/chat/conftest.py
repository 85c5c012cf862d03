"""The rules of packed chat worked out on small cases, by hand or by the loader they come from."""

from pathlib import Path
from typing import Any

import pytest

from support.cases import cases_of, lines


@pytest.fixture(scope="session")
def chat_cases() -> Path:
    """The folder with `packing_cases.jsonl` and `generator_cases.jsonl`."""
    return cases_of("chat")


@pytest.fixture(scope="session")
def packing_cases(chat_cases: Path) -> list[dict[str, Any]]:
    return lines(chat_cases / "packing_cases.jsonl")


@pytest.fixture(scope="session")
def generator_cases(chat_cases: Path) -> list[dict[str, Any]]:
    return lines(chat_cases / "generator_cases.jsonl")
