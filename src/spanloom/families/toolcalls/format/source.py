"""Files of samples, and their lines.

In: one file, or a folder with `*.jsonl` files below it. Out: files with their names for findings, and one JSON value
per line. Only LF ends a line; CR counts as a blank; blank lines and a byte order mark before the first line are
ignored.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from spanloom.errors import SourceError
from spanloom.families.toolcalls.format.calls import no_constant
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.records.files import check_names

SUFFIX = ".jsonl"
_BOM = b"\xef\xbb\xbf"
MAX_DEPTH = 200
"""The maximum nesting of lists and objects. The JSON parsers and writers used here have limits slightly above."""

_DIGITS = bytes(ord("0") if ord("0") <= byte <= ord("9") else ord(" ") for byte in range(256))
_BEYOND_64_BITS = b"0" * 19
"""An integer beyond 64 bits has at least this many digits; `_DIGITS` maps each digit to 0."""


UNREADABLE = object()
"""The value of a line that is not UTF-8, not JSON, too deeply nested, or contains a lone surrogate."""


@dataclass(frozen=True, kw_only=True)
class SampleFile:
    """A file of samples, and its name in findings."""

    path: Path
    name: str


def one_file(place: Path) -> list[SampleFile]:
    """The file at `place`. Raises SourceError if it is missing or not a regular file."""
    if not place.is_file():
        what = "this is a folder" if place.is_dir() else "not a regular file"
        what = what if place.exists() else "the file is missing"
        raise SourceError(what, where=str(place), remedy="give a file of samples, or a folder with --data-dir")
    return [SampleFile(path=place, name=place.name)]


def files_below(folder: Path) -> list[SampleFile]:
    """All `*.jsonl` below a folder, sorted by relative path. Names of files and folders with a leading dot are skipped.

    Raises SourceError if the folder is missing, has no such file, or has a file name that is not UTF-8.
    """
    if not folder.is_dir():
        what = "this is a file" if folder.exists() else "the folder is missing"
        raise SourceError(what, where=str(folder), remedy="give a folder of samples, or a file with --data")
    names = sorted(
        relative.as_posix()
        for relative in (path.relative_to(folder) for path in folder.rglob(f"*{SUFFIX}") if path.is_file())
        if not any(part.startswith(".") for part in relative.parts)
    )
    if not names:
        raise SourceError("the folder has no *.jsonl file", where=str(folder), remedy="give a folder with such files")
    check_names(names)
    return [SampleFile(path=folder / name, name=name) for name in names]


def check_outside(output: Path, *folders: Path) -> None:
    """Raises ToolCallError if the output is below an input folder: the next run would read it as input."""
    for folder in folders:
        if folder.is_dir() and folder.resolve() in (output.resolve(), *output.resolve().parents):
            raise ToolCallError(
                f"the output is inside the input folder {folder}",
                where=str(output),
                remedy="give another place for the output",
            )


def lines_of(stream: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields the number (from 1) and the bytes of each line that is not blank."""
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(_BOM)
        if not line.isspace() and line:
            yield number, line


def parse_line(line: bytes) -> Any:
    """The JSON value of a line; `UNREADABLE` if it is invalid or nested deeper than `MAX_DEPTH`.

    Of duplicate keys in an object, the last one counts. An integer beyond 64 bits may become a float: see
    `parse_exactly`.
    """
    try:
        value = orjson.loads(line)
    except ValueError:
        return parse_exactly(line)
    return UNREADABLE if _too_deep(line, value) else value


def parse_exactly(line: bytes) -> Any:
    """Like `parse_line`, with the standard library: it keeps all digits of integers, and is about ten times slower."""
    try:
        value = json.loads(line.decode(), parse_constant=no_constant)
        json.dumps(value, ensure_ascii=False).encode()  # fails for a lone surrogate
    except (ValueError, RecursionError):
        return UNREADABLE
    return UNREADABLE if _too_deep(line, value) else value


def _too_deep(line: bytes, value: Any) -> bool:
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return False
    # One iterator per level: a list of all pending items could take as much memory as the value.
    waiting = [iter((value,))]
    while waiting:
        for item in waiting[-1]:
            if isinstance(item, dict | list):
                if len(waiting) > MAX_DEPTH:
                    return True
                waiting.append(iter(item.values() if isinstance(item, dict) else item))
                break
        else:
            waiting.pop()
    return False


def holds_long_number(line: bytes) -> bool:
    """Whether `parse_line` may have turned an integer of this line into a float."""
    return _BEYOND_64_BITS in line.translate(_DIGITS)


def read_samples(file: SampleFile) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields line number and sample of each line of a file; integers keep all their digits.

    Raises ToolCallError at an invalid line; `spanloom toolcalls validate` lists all of them.
    """
    with file.path.open("rb") as stream:
        for number, line in lines_of(stream):
            value = parse_exactly(line) if holds_long_number(line) else parse_line(line)
            if not isinstance(value, dict):
                what = "is not JSON" if value is UNREADABLE else "is not a JSON object"
                raise ToolCallError(
                    f"the line {what}",
                    where=f"{file.path}, line {number}",
                    remedy="fix it; `spanloom toolcalls validate` lists all such lines",
                )
            yield number, value


def rename_keys(sample: dict[str, Any]) -> None:
    """Renames the older keys in place: context → messages, completion → assistant_raw."""
    for old, new in (("context", "messages"), ("completion", "assistant_raw")):
        if old in sample and new not in sample:
            sample[new] = sample.pop(old)
