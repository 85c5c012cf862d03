"""Files of records → JSON values of traces, each with its line or row.

In: a local file: JSON Lines, or any other type that `spanloom.records` reads. Out: `Reading`s: the values of a record,
or the reason why it gives none.

The first record of a known form decides the form of a file, unless `--map` does. Records in Spanloom's own form are
accepted in any file.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.conversations.outcomes import in_file
from spanloom.errors import RecordError, SourceError
from spanloom.families.traces.forms.form import NoTraceError, TraceForm
from spanloom.families.traces.forms.registry import is_own, recognise_form
from spanloom.families.traces.trace import CheckedTrace, checked_trace
from spanloom.records.files import RecordPlace
from spanloom.records.json_lines import json_value, raw_lines
from spanloom.records.record_files import KINDS, RecordFile, kind_of, read_records, unread_columns
from spanloom.records.unpacked import plain_suffix
from spanloom.storage.unchanged import file_state

OnForm = Callable[[TraceForm, Any], None]
"""Callback: the form of a file, and its first record of that form."""


Reading = tuple[int, int, tuple[Any, ...]]
"""A record: its line or row, from 1; bytes of the file read so far; JSON values of traces, and an error for each part
that gives none. A plain tuple for speed: there is one for each record."""


@dataclass(frozen=True, kw_only=True)
class FormChoice:
    """How records are read. `form`: the form of all records; without it, `recognise` detects one."""

    form: TraceForm | None = None
    recognise: bool = False
    on_form: OnForm | None = None


OWN_FORM = FormChoice()
"""Only traces in Spanloom's own form."""


def read_values(path: Path, called: str, choice: FormChoice = OWN_FORM) -> Iterator[Reading]:
    """The records of a file. `called`: its name for messages. Raises SourceError if it cannot be read completely."""
    form = choice.form
    undecided = choice.recognise and form is None
    unit = ""
    for number, read, value in _records(path, called):
        if isinstance(value, ValueError):
            yield number, read, (value,)
            continue
        if undecided and isinstance(value, dict):
            form = None if is_own(value) else recognise_form(value)
            undecided = form is None and not is_own(value)
            if form is not None and choice.on_form is not None:
                choice.on_form(form, value)
        if form is None or (choice.form is None and is_own(value)):
            yield number, read, (value,)
        elif not isinstance(value, dict):
            yield number, read, (ValueError("not a JSON object"),)
        else:
            try:
                yield number, read, tuple(form.traces(value))
            except NoTraceError as refused:
                unit = unit or _UNITS.get(_kind(path), "row")
                remedy = in_file(refused.remedy, f"{unit} {number}")
                yield number, read, (NoTraceError(refused.reason, refused.detail, remedy),)


def unread_columns_at(path: Path) -> dict[str, str]:
    """Name → type of the columns of a table that are not read: JSON has no such values."""
    return unread_columns(_record_file(path)) if plain_suffix(path) in KINDS else {}


def first_trace(path: Path, called: str, choice: FormChoice, max_step_characters: int) -> CheckedTrace | None:
    """The first valid trace of a file; None if there is none."""
    for _, _, values in read_values(path, called, choice):
        for value in values:
            if isinstance(value, ValueError):
                continue
            with suppress(ValueError):
                return checked_trace(value, max_step_characters)
    return None


_UNITS = {"JSON Lines": "line", "JSON": "record"}
"""What a record of a file of this kind is called; of the others, a row."""


def _kind(path: Path) -> str:
    return "JSON Lines" if plain_suffix(path) not in KINDS else kind_of(path)


def _records(path: Path, called: str) -> Iterator[tuple[int, int, Any]]:
    """Number, bytes read and value of each record; the value of an unreadable record is a ValueError."""
    try:
        if _kind(path) == "JSON Lines":
            yield from _lines(path)
        else:
            yield from _rows(path)
    except OSError as fault:
        raise SourceError(
            f"the file cannot be read: {fault.strerror or fault}", where=called, remedy="see to the file and its disk"
        ) from None


def _lines(path: Path) -> Iterator[tuple[int, int, Any]]:
    read = 0
    for number, line in enumerate(raw_lines(path), start=1):
        read += len(line) + 1
        if not line or line.isspace():
            continue
        value: Any
        try:
            value = json_value(line)
        except RecursionError:
            value = ValueError("nested too deep")
        except ValueError as fault:  # the error of orjson and the standard library, also for bytes that are not UTF-8
            value = ValueError(f"not JSON: {fault}")
        yield number, read, value


def _rows(path: Path) -> Iterator[tuple[int, int, Any]]:
    refused: list[tuple[int, int, Any]] = []
    read = 0

    def unreadable(error: RecordError) -> None:
        number = error.where.number if isinstance(error.where, RecordPlace) else 0
        refused.append((number, read, ValueError(error.what)))

    def on_read(done: int) -> None:
        nonlocal read
        read = done

    for place, value in read_records(_record_file(path), unreadable, on_read):
        yield from refused
        refused.clear()
        yield place.number, read, value
    yield from refused


def _record_file(path: Path) -> RecordFile:
    return RecordFile(path=path, name=path.name, kind=kind_of(path), state=file_state(path))
