"""JSON Lines: one JSON value a line, split at LF alone; compressed with gzip or zstd, or not.

In: a local file. Out: lines as bytes, or their JSON values, each with its place, `FILE, line N` counted from 1. A byte
order mark at the beginning is passed over, and a CR before LF. U+2028 and its like are text: they end no line.

Integers keep their digits. What cannot be written as UTF-8 (half of a surrogate pair) or held by a double (1e400) is
refused like what is not JSON.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import orjson

from spanloom.errors import RecordError, SourceError
from spanloom.records import strict_json
from spanloom.records.files import OnUnreadable, stop
from spanloom.records.place import RecordPlace
from spanloom.records.unpacked import OnRead, unpacked

RepeatedKeys = Literal["refuse", "last"]
"""What is done with an object that holds a key twice: the record cannot be read, or the last value counts."""

LONGEST_LINE = 256 << 20
"""Bytes. A longer line is refused: a line is held whole, and 100 kB of zstd can be unpacked to one of 3 GB."""

BOM = b"\xef\xbb\xbf"
_DIGITS_ALONE = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_MANY_DIGITS = b"0" * 19
_REMEDY = "fix it, or skip and count such lines with --on-error skip"


def lines(path: Path, on_read: OnRead | None = None) -> Iterator[tuple[RecordPlace, bytes]]:
    """Place and bytes of each line, without its end.

    Raises SourceError for a file that cannot be unpacked, and for a line beyond LONGEST_LINE.
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
            yield RecordPlace.of(path, "line", number), line.removesuffix(b"\n").removesuffix(b"\r")


def json_lines(
    path: Path,
    unreadable: OnUnreadable = stop,
    *,
    repeated_keys: RepeatedKeys = "last",
    on_read: OnRead | None = None,
) -> Iterator[tuple[RecordPlace, Any]]:
    """Place and value of each line of a JSON Lines file; lines of white space alone are passed over.

    Lines that cannot be read go to `unreadable`, also those nested too deep. Raises SourceError for a file that cannot
    be unpacked.
    """
    parse = json_value if repeated_keys == "last" else unique_keys
    for where, line in lines(path, on_read):
        if not line.strip():
            continue
        try:
            value = parse(line)
        except strict_json.RepeatedKeyError as fault:
            what = f"the line holds {fault}"
        except RecursionError:
            what = "the line is not read: it is nested too deep"
        except ValueError as fault:  # orjson's and the standard library's error are ValueErrors
            what = f"the line is not JSON: {fault}"
        else:
            yield where, value
            continue
        unreadable(RecordError(what, where=where, remedy=_REMEDY))


def json_value(line: bytes) -> Any:
    """The value of a JSON text; of repeated keys the last counts. Raises ValueError."""
    value = orjson.loads(line)
    # orjson makes a float of an integer beyond 64 bits, which has 19 digits at least.
    return json.loads(line) if _MANY_DIGITS in line.translate(_DIGITS_ALONE) else value


def unique_keys(line: bytes) -> Any:
    """The value of a JSON text. Raises ValueError or RecursionError for what is refused, a repeated key too."""
    # The standard library, which decides where strict_json is in doubt, lets half of a surrogate pair and 1e400 pass.
    orjson.loads(line)
    return strict_json.loads(line)
