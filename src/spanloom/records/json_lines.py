"""JSON Lines: one JSON value a line, split at LF alone; compressed with gzip or zstd, or not.

In: a local file. Out: lines as bytes, or their JSON values, each with its place, `FILE, line N` counted from 1. A byte
order mark at the beginning is skipped, and so is a CR before LF. U+2028 and similar characters do not end a line.

Integers keep their digits. Text that UTF-8 cannot encode (half of a surrogate pair) and numbers that a double cannot
hold (1e400) are refused like invalid JSON.
"""

import ast
import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import orjson

from spanloom.errors import RecordError, SourceError
from spanloom.records import strict_json
from spanloom.records.files import OnUnreadable, RecordPlace, stop
from spanloom.records.unpacked import OnRead, unpacked

RepeatedKeys = Literal["refuse", "last"]
"""How an object with a duplicate key is treated: the record is unreadable, or the last value counts."""

LONGEST_LINE = 256 << 20
"""Bytes. A longer line is refused: a line is held in memory, and 100 kB of zstd can unpack to a line of 3 GB."""

BOM = b"\xef\xbb\xbf"
BYTES_COUNTED = 1 << 18
"""Quotes are counted over several lines at once, of about this many bytes in total."""
_DIGITS_ALONE = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_MANY_DIGITS, _TWO_DIGITS = b"0" * 19, b"00"
_SKIP = "skip and count such lines with --on-error skip"


def raw_lines(path: Path, on_read: OnRead | None = None) -> Iterator[bytes]:
    """The bytes of each line, without its line ending.

    Raises SourceError for a file that cannot be unpacked, and for a line longer than LONGEST_LINE.
    """
    number = 0
    with unpacked(path, where=lambda: f"{path}, after line {number}", on_read=on_read) as stream:
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise SourceError(
                    f"a line does not end within {LONGEST_LINE:,} bytes",
                    where=f"{path}, line {number}",
                    remedy="give JSON Lines: one value a line",
                )
            if number == 1:
                line = line.removeprefix(BOM)
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def lines(path: Path, on_read: OnRead | None = None) -> Iterator[tuple[RecordPlace, bytes]]:
    """Place and bytes of each line, as `raw_lines` gives them. Raises the same."""
    for number, line in enumerate(raw_lines(path, on_read), start=1):
        yield RecordPlace.of(path, "line", number), line


def json_lines(
    path: Path,
    unreadable: OnUnreadable = stop,
    *,
    repeated_keys: RepeatedKeys = "last",
    on_read: OnRead | None = None,
) -> Iterator[tuple[RecordPlace, Any]]:
    """Place and value of each line of a JSON Lines file; blank lines are skipped.

    Lines that cannot be read or are nested too deep go to `unreadable`. Raises SourceError for a file that cannot be
    unpacked.
    """
    filled = filled_lines(path, on_read)
    values = _unique_values(filled) if repeated_keys == "refuse" else _last_values(filled)
    for where, value, fault in values:
        if fault is None:
            yield where, value
        else:
            unreadable(RecordError(fault, where=where, remedy=f"{written_again(fault, path) or 'fix it'}, or {_SKIP}"))


def _last_values(filled: Iterator[tuple[RecordPlace, bytes]]) -> Iterator[tuple[RecordPlace, Any, str | None]]:
    """Place of each line, its value, and None; if the line is unreadable, None and the reason."""
    return ((where, *_value(line, json_value)) for where, line in filled)


def _unique_values(filled: Iterator[tuple[RecordPlace, bytes]]) -> Iterator[tuple[RecordPlace, Any, str | None]]:
    """Like `_last_values`, but a line with a duplicate key is unreadable."""
    ended: SourceError | None = None
    while ended is None:
        group, size = [], 0
        try:
            for where, line in filled:
                group.append((where, line))
                size += len(line)
                if size >= BYTES_COUNTED:
                    break
        except SourceError as fault:  # raised after the lines before it were yielded
            ended = fault
        if not group:
            break
        counts = strict_json.count_quotes_of_lines([line for _, line in group])
        for (where, line), quotes in zip(group, counts, strict=True):
            yield where, *unique_value(line, quotes)
    if ended is not None:
        raise ended


def filled_lines(path: Path, on_read: OnRead | None = None) -> Iterator[tuple[RecordPlace, bytes]]:
    """`lines` without blank lines."""
    return ((where, line) for where, line in lines(path, on_read) if line.strip())


def unique_value(line: bytes, quotes: int | None = None) -> tuple[Any, str | None]:
    """The value of a line whose objects hold each key once, and None; or None and why it cannot be read.

    `quotes`: see `strict_json.loads`.
    """
    return _value(line, unique_keys, quotes)


def _value(line: bytes, parse: Callable[..., Any], *more: Any) -> tuple[Any, str | None]:
    try:
        return parse(line, *more), None
    except strict_json.RepeatedKeyError as fault:
        return None, f"the line holds {fault}"
    except RecursionError:
        return None, "the line is not read: it is nested too deep"
    except ValueError as fault:  # orjson's and the standard library's error are ValueErrors
        return None, f"the line is not JSON: {_why(line) or fault}"


_COMMA = "a comma follows its value, as in an array"
_NO_NUMBER = "it holds NaN or Infinity, as Python writes them"
_LITERAL = "it is a literal of Python"
_WRITTEN_AGAIN = {
    _COMMA: "sed 's/,[[:space:]]*$//' {file} > records.jsonl takes the commas away",
    _NO_NUMBER: "jq -c . {file} > records.jsonl writes NaN as null",
    _LITERAL: 'python3 -c "import ast, json, sys; [print(json.dumps(ast.literal_eval(line))) for line in sys.stdin]" '
    "< {file} > records.jsonl writes JSON",
}


def written_again(fault: str | None, path: Path) -> str | None:
    """The remedy for a file whose lines are almost JSON. `fault`: of one of them; None for any other fault."""
    why = (fault or "").removeprefix("the line is not JSON: ")
    return _WRITTEN_AGAIN[why].format(file=shlex.quote(str(path))) if why in _WRITTEN_AGAIN else None


def _why(line: bytes) -> str | None:
    """Why a line is almost JSON."""
    constants: list[str] = []
    try:
        if _is_element(line):
            return _COMMA
        json.loads(line, parse_constant=constants.append)
    except ValueError:
        if line.lstrip().startswith(b"{'") and _is_literal(line):
            return _LITERAL
    except RecursionError:
        pass
    return _NO_NUMBER if constants else None


def _is_literal(line: bytes) -> bool:
    try:
        return isinstance(ast.literal_eval(line.decode().strip()), dict)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def _is_element(line: bytes) -> bool:
    """Whether a line is JSON but for a comma at its end."""
    bare = line.rstrip()
    try:
        return bare.endswith(b",") and orjson.loads(bare[:-1]) is not None
    except ValueError:
        return False


def json_value(line: bytes) -> Any:
    """The value of a JSON text; of repeated keys the last counts. Raises ValueError for text that is not JSON."""
    value = orjson.loads(line)
    # orjson parses an integer beyond 64 bits, which has at least 19 digits, as a float. A run of 19 digits gives two
    # neighbouring digits in every ninth byte. This fast check clears most lines.
    if _TWO_DIGITS in line[::9].translate(_DIGITS_ALONE) and _MANY_DIGITS in line.translate(_DIGITS_ALONE):
        return json.loads(line)
    return value


def unique_keys(line: bytes, quotes: int | None = None) -> Any:
    """The value of a JSON text. Raises ValueError (also for a repeated key) or RecursionError.

    `quotes`: see `strict_json.loads`.
    """
    # Not strict_json.loads: its fallback, the standard library, accepts half of a surrogate pair and 1e400.
    return strict_json.checked(orjson.loads(line), line, quotes)
