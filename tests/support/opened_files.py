"""How often a file is opened while a piece of work runs in this process."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_watched: dict[str, int] = {}


def _count(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _watched and isinstance(arguments[0], str | os.PathLike):
        path = str(arguments[0])
        if path in _watched:
            _watched[path] += 1


_hooked: list[bool] = []


def opens_of(path: Path, work: Callable[[], object]) -> int:
    """How often `path`, written like this, is opened while `work` runs."""
    if not _hooked:
        sys.addaudithook(_count)  # a hook stays for the life of the process
        _hooked.append(True)
    _watched[str(path)] = 0
    try:
        work()
    finally:
        opens = _watched.pop(str(path))
    return opens
