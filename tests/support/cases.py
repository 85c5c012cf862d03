"""Where the cases of a family lie: inputs, and what they must become by the rules of the family's page.

`tests/cases/FAMILY`, or the folder that `SPANLOOM_<FAMILY>_CASES` names, with files of the same names. Each test goes
through every case that its file holds.
"""

import json
import os
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]


def cases_of(family: str) -> Path:
    return Path(os.environ.get(f"SPANLOOM_{family.upper()}_CASES") or REPOSITORY / "tests/cases" / family)


def beside(variable: str, default: str) -> Path:
    """A folder beside the checkout: the one that `variable` names, else `../shared/DEFAULT`."""
    return Path(os.environ.get(variable) or REPOSITORY.parent / "shared" / default)


def lines(path: Path) -> list[Any]:
    """The values of a JSON Lines file."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line.strip()]
