"""What several test files only read is made once a run, by whichever worker asks first; the others wait for it.

In: a name, and a function that fills a folder. Out: the folder. Nobody may change what is in it: a test that does takes
a copy.
"""

import fcntl
from collections.abc import Callable
from pathlib import Path

_folder: list[Path] = []


def made_below(folder: Path) -> None:
    """Says where: the folder of this run of pytest, which all workers share."""
    _folder[:] = [folder / "made-once"]


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name`, which `make` has filled."""
    (below,) = _folder
    below.mkdir(exist_ok=True)
    place, done = below / name, below / f"{name}.done"
    with (below / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            place.mkdir()  # fails where an earlier attempt failed: its error was reported
            make(place)
            done.touch()
    return place
