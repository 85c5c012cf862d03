"""Folders of cases that are no part of the repository, and lines of them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]


def given_folder(what: str, variable: str, place: str) -> Path:
    """The folder that the variable names, else `place` beside the repository.

    Skips the test without one; SPANLOOM_REQUIRE_SAMPLE=1 turns that into a failure.
    """
    path = Path(os.environ.get(variable) or REPOSITORY.parent / place)
    if not path.is_dir():
        if os.environ.get("SPANLOOM_REQUIRE_SAMPLE") == "1":
            pytest.fail(f"{what} required here, but {path} is not there")
        pytest.skip(f"{what} not on this machine ({path}); name the folder in {variable}")
    return path


def lines(path: Path) -> list[Any]:
    """The values of a JSON Lines file."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]
