"""The rules of packed chat worked out on small cases, by hand or by the loader they come from."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]
CASES = REPOSITORY.parent / "shared/families/chat"


@pytest.fixture(scope="session")
def chat_cases() -> Path:
    """The folder with `packing_cases.jsonl` and `generator_cases.jsonl`; not part of the repository.

    $SPANLOOM_CHAT_CASES names it; SPANLOOM_REQUIRE_SAMPLE=1 turns its absence from a skip into a failure.
    """
    path = Path(os.environ.get("SPANLOOM_CHAT_CASES") or CASES)
    if not path.is_dir():
        if os.environ.get("SPANLOOM_REQUIRE_SAMPLE") == "1":
            pytest.fail(f"the chat cases are required here, but {path} is not there")
        pytest.skip(f"the chat cases are not on this machine ({path}); name their folder in SPANLOOM_CHAT_CASES")
    return path


@pytest.fixture(scope="session")
def packing_cases(chat_cases: Path) -> list[dict[str, Any]]:
    return _lines(chat_cases / "packing_cases.jsonl")


@pytest.fixture(scope="session")
def generator_cases(chat_cases: Path) -> list[dict[str, Any]]:
    return _lines(chat_cases / "generator_cases.jsonl")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
