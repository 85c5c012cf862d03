"""Defensive reading of small files that others may have written: manifests, records, cards.

In: a path, and the error class to raise for an invalid file. Out: its bytes, or the JSON value in them.
"""

import errno
import json
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any

from spanloom.errors import SpanloomError
from spanloom.storage.local import kind_of

SMALL_BYTES = 64 << 20
"""No manifest or record of ours comes near this size."""

DEEPEST = 64
"""No manifest or record of ours is nested deeper than some ten levels."""


def read_small(path: Path, error: type[SpanloomError], what: str, remedy: str, *, limit: int = SMALL_BYTES) -> bytes:
    """The bytes of a small, untrusted file.

    Raises FileNotFoundError if nothing is at `path`, and `error` for anything else that cannot be read: a folder, a
    FIFO, a device, a cycle of links, more than `limit` bytes. `what` names the file in messages: "the manifest".
    """

    def refuse(why: str) -> SpanloomError:
        return error(f"{what} cannot be read: {why}", where=str(path), remedy=remedy)

    try:
        # Non-blocking: a FIFO without a writer opens at once, and is then rejected by its type.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:  # noqa: PTH123
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise refuse(f"it is {kind_of(status.st_mode)}, not a file")
            data = b"" if status.st_size > limit else stream.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except ValueError as fault:  # an invalid name: with a NUL, with half of a surrogate pair
        raise refuse(str(fault)) from None
    except OSError as refusal:
        raise refuse(refusal.strerror or str(refusal)) from None
    if status.st_size > limit or len(data) > limit:
        raise refuse(f"it has more than {limit >> 20} MiB")
    return data


def read_json(path: Path, error: type[SpanloomError], what: str, remedy: str) -> Any:
    """The value of a small, untrusted JSON file: `read_small`, then `parse_json`."""
    return parse_json(read_small(path, error, what, remedy), error, what, str(path), remedy)


def read_object(path: Path, error: type[SpanloomError]) -> dict[str, Any]:
    """The object in a small JSON file that others wrote, such as a model's. Raises `error` for anything else in it."""
    try:
        value = json.loads(read_small(path, error, "the file", "fix it"))
    except (ValueError, RecursionError) as fault:
        raise error(f"the file is not JSON: {fault}", where=str(path), remedy="fix it") from None
    if not isinstance(value, dict):
        raise error("the file is not a JSON object", where=str(path), remedy="fix it")
    return value


def parse_json(data: bytes, error: type[SpanloomError], what: str, where: str, remedy: str) -> Any:
    """An untrusted JSON text → its value. `where`: its path or URI, for messages.

    Raises `error` for text that is not JSON, and for JSON that Spanloom never writes and later code cannot handle:
    nested deeper than `DEEPEST`, numbers beyond 64 bits, NaN, text that is not Unicode (half of a surrogate pair), a
    duplicate key in an object.
    """
    try:
        text = data.decode("utf-8-sig")
        value = json.loads(
            text,
            parse_int=_int_of_64_bits,
            parse_float=_finite,
            parse_constant=_no_constant,
            object_pairs_hook=_no_key_twice,
        )
        _check_depth(value)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise error(f"{what} holds text that is not Unicode", where=where, remedy=remedy) from None
    except RecursionError:
        raise error(f"{what} is nested too deep", where=where, remedy=remedy) from None
    except ValueError as fault:
        raise error(f"{what} is not JSON: {fault}", where=where, remedy=remedy) from None
    return value


def _int_of_64_bits(digits: str) -> int:
    if len(digits) > 20 or not -(1 << 63) <= int(digits) < 1 << 64:
        raise ValueError(f"a number of {len(digits)} digits is beyond 64 bits")
    return int(digits)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        times = Counter(key for key, _ in pairs)
        twice = next(key for key, count in times.items() if count > 1)
        raise ValueError(f"duplicate key {twice[:60]!r} in an object")
    return values


def _finite(digits: str) -> float:
    if abs(value := float(digits)) == float("inf"):
        raise ValueError(f"{digits[:20]} is beyond what a float holds")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise RecursionError
