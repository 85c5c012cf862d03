"""All findings of an audit as lines of JSON: for programs that remove or repair the documents.

In: findings as values. Out: a file, which gets its name when it is complete.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from spanloom.law.classes import CLASSES
from spanloom.storage import written_atomically

Listed = tuple[str, int, int, str, int]
"""File, row, part of the row, class, and the token of the document; all but the class count from 0."""


class Listing:
    """A list of findings; without a file, nothing is kept."""

    def __init__(self, stream: BinaryIO | None) -> None:
        self._stream = stream

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    def add(self, findings: Iterable[Listed]) -> None:
        if self._stream is None:
            return
        for file, row, part, name, token in findings:
            of_class = CLASSES[name]
            line = {
                "file": file,
                "row": row,
                "part": part,
                "class": name,
                "token": token,
                "should": of_class.remedy,
                "cause": of_class.cause,
            }
            self._stream.write(json.dumps(line).encode() + b"\n")


@contextmanager
def opened_listing(file: Path | None) -> Iterator[Listing]:
    """The list of findings in this file; of nothing if there is none."""
    if file is None:
        yield Listing(None)
        return
    with written_atomically(file) as stream:
        yield Listing(stream)
