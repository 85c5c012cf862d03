"""The rules of packed chat worked out on small cases, by hand or by the loader they come from."""

from pathlib import Path
from typing import Any

import pytest

from support.given import given_folder, lines


@pytest.fixture(scope="session")
def chat_cases() -> Path:
    """The folder with `packing_cases.jsonl` and `generator_cases.jsonl`; not part of the repository.

    $SPANLOOM_CHAT_CASES names it; SPANLOOM_REQUIRE_SAMPLE=1 turns its absence from a skip into a failure.
    """
    return given_folder("the chat cases are", "SPANLOOM_CHAT_CASES", "shared/families/chat")


@pytest.fixture(scope="session")
def packing_cases(chat_cases: Path) -> list[dict[str, Any]]:
    return lines(chat_cases / "packing_cases.jsonl")


@pytest.fixture(scope="session")
def generator_cases(chat_cases: Path) -> list[dict[str, Any]]:
    return lines(chat_cases / "generator_cases.jsonl")
