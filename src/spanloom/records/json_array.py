"""JSON documents: an array of records in one file, read record by record; or one record alone.

In: a local file, compressed or not. Out: values with their number, counted from 1. Memory use depends on the longest
record: the file is read in pieces, and the standard library's decoder finds the end of each record.

    [{"a": 1}, {"b": 2}]    two records
    {"a": 1}                one record
    {"a": 1}\\n{"b": 2}      JSON Lines under another name: `is_json_lines` detects it
"""

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from spanloom.errors import RecordError, SourceError
from spanloom.records import strict_json
from spanloom.records.files import OnUnreadable, RecordPlace, stop
from spanloom.records.json_lines import BOM, lines, unique_keys
from spanloom.records.unpacked import OnRead, unpacked

PIECE_BYTES = 1 << 20
LONGEST_RECORD = 256 << 20
"""Characters. A longer record is refused: an unclosed record would otherwise be read to the end of the file."""

_SPACE = re.compile(r"[ \t\r\n]*")
_NEAR_THE_END = 64
"""Characters: a value cut off at the end of a piece causes decoding errors only within this distance of the end."""
_AFTER_A_VALUE = frozenset(" \t\r\n,]}")
_REMEDY = "fix the file, or write one record a line (.jsonl), where a bad line can be skipped and counted"
_SEVERAL = "jq -c . FILE > records.jsonl writes several documents as one a line"


def is_json_lines(path: Path) -> bool:
    """Whether a `.json` file holds JSON Lines: its first line is an object, and more than white space follows."""
    with unpacked(path) as stream:  # only the beginning: the first line of an array may be the whole file
        if not stream.read(PIECE_BYTES).removeprefix(BOM).lstrip().startswith(b"{"):
            return False
    first = True
    for _, line in lines(path):
        if not line.strip():
            continue
        if not first:
            return True
        try:
            if not isinstance(strict_json.loads(line), dict):
                return False
        except (ValueError, RecursionError):
            return False
        first = False
    return False


def is_array_of_lines(path: Path) -> bool:
    """Whether a `.jsonl` file is an array over several lines: it begins with `[`, and its first line is no value."""
    with unpacked(path) as stream:
        begin = stream.read(PIECE_BYTES).removeprefix(BOM).lstrip()
    if not begin.startswith(b"["):
        return False
    first, line_end, _ = begin.partition(b"\n")
    try:
        strict_json.loads(first)
    except (ValueError, RecursionError):
        return bool(line_end)  # a longer first line is a value of its own
    return False


def json_array(
    path: Path, unreadable: OnUnreadable = stop, on_read: OnRead | None = None
) -> Iterator[tuple[RecordPlace, Any]]:
    """Place and value of each element of the array in a file, or of the one value that the file holds.

    An element with a repeated key goes to `unreadable`. Raises SourceError if the file is not JSON: the records after
    a syntax error cannot be separated.
    """
    with unpacked(path, on_read=on_read) as stream:
        text = _Text(path, stream)
        if text.peek() == "[":
            text.at += 1
            separator = text.peek()
            number = 0
            if separator == "]":
                text.at += 1
            while separator != "]":
                number += 1
                yield from _element(text, RecordPlace.of(path, "record", number), unreadable)
                separator = text.peek()
                if separator not in (",", "]"):
                    raise text.fault("a comma or the end of the array is missing")
                text.at += 1
        elif text.peek():
            yield from _element(text, RecordPlace.of(path, "record", 1), unreadable)
        if text.peek():
            raise text.fault("something follows the end of the JSON document", _SEVERAL)


def _element(text: "_Text", where: RecordPlace, unreadable: OnUnreadable) -> Iterator[tuple[RecordPlace, Any]]:
    written = text.take()
    try:
        value = unique_keys(written.encode())
    except RecursionError:
        unreadable(RecordError("the record is not read: it is nested too deep", where=where, remedy=_REMEDY))
    except strict_json.RepeatedKeyError as fault:
        unreadable(RecordError(f"the record holds {fault}", where=where, remedy=_REMEDY))
    except ValueError as fault:
        unreadable(RecordError(f"the record is not JSON: {fault}", where=where, remedy=_REMEDY))
    else:
        yield where, value


class _Text:
    """Reads the text of a file in pieces. `at`: the current position in the piece that is held."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self._path, self._stream = path, stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._ended = False
        self._before = 0
        self._held = ""
        self.at = 0
        self._more()

    def peek(self) -> str:
        """The next character that is not white space, "" at the end."""
        while True:
            match = _SPACE.match(self._held, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self._held):
                return self._held[self.at]
            if not self._more():
                return ""

    def take(self) -> str:
        """The source text of the JSON value that begins here. Raises SourceError for invalid JSON."""
        self.peek()
        while True:
            fault = None
            try:
                _, end = _DECODER.raw_decode(self._held, self.at)
            except json.JSONDecodeError as wrong:
                fault = wrong
            except RecursionError:
                raise self.fault("a record is nested too deep") from None
            if self._ended or not (self._goes_on(end) if fault is None else self._cut_off(fault)):
                break
            if len(self._held) - self.at > LONGEST_RECORD:
                raise self.fault(f"a record does not end within {LONGEST_RECORD:,} characters")
            self._more(len(self._held) - self.at)
        if fault is not None:
            self.at = fault.pos
            raise self.fault(fault.msg)
        written, self.at = self._held[self.at : end], end
        return written

    def _goes_on(self, end: int) -> bool:
        """Whether a number may continue in the next piece: of `1.5`, this piece may end after `1` or `1.`."""
        return len(self._held) - end < _NEAR_THE_END and self._held[end : end + 1] not in _AFTER_A_VALUE

    def _cut_off(self, fault: json.JSONDecodeError) -> bool:
        return fault.msg.startswith("Unterminated string") or fault.pos >= len(self._held) - _NEAR_THE_END

    def _more(self, least: int = 0) -> bool:
        """Reads the next piece. `least`: the length of an incomplete record: doubling keeps decoding attempts few."""
        if self._ended:
            return False
        piece = self._stream.read(max(PIECE_BYTES, least))
        try:
            text = self._decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as wrong:
            raise self.fault(f"it is not UTF-8: {wrong.reason}") from None
        self._ended = not piece
        if not self._before and not self._held and text.startswith(BOM.decode()):
            text = text[1:]
        self._before += self.at
        self._held = self._held[self.at :] + text
        self.at = 0
        return bool(piece)

    def fault(self, what: str, remedy: str = _REMEDY) -> SourceError:
        where = f"{self._path}, character {self._before + self.at + 1}"
        return SourceError(f"the file is not JSON: {what}", where=where, remedy=remedy)


_DECODER = json.JSONDecoder()
