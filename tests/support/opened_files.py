"""How often a file is opened while a piece of work runs in this process."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def opens_of(path: Path, work: Callable[[], object]) -> int:
    """How often `path`, written like this, is opened while `work` runs."""
    opens, watching = 0, True

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal opens
        if watching and event == "open" and isinstance(arguments[0], str | os.PathLike):
            opens += str(arguments[0]) == str(path)

    sys.addaudithook(count)  # it stays for the life of the process
    try:
        work()
    finally:
        watching = False
    return opens
