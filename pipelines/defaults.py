"""The defaults of a family's options, as parameters of a pipeline.

In: the name of a family. Out: the constants of `src/spanloom/families/NAME/defaults.py`, which the commands and the
library also use. The file is run by its path: pipelines are compiled in environments with kfp but without Spanloom.
"""

import runpy
from pathlib import Path
from types import SimpleNamespace

FAMILIES = Path(__file__).parents[1] / "src/spanloom/families"


def defaults_of(family: str) -> SimpleNamespace:
    """The constants, as attributes: `defaults_of("harmony").VALID_FRACTION`."""
    found = runpy.run_path(str(FAMILIES / family / "defaults.py"))
    return SimpleNamespace(**{name: value for name, value in found.items() if name.isupper()})


def as_text(value: object) -> str:
    """A default as a text parameter. None becomes "", which leaves the option out; a switch becomes "1" or "0"."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)
