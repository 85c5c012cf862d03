"""The files of chat data, the form of their records, and the records in order.

In: local places, the options of a conversion. Out: a `ChatInput`, and its records as `Read`s, also unreadable ones.
"""

import codecs
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from spanloom.conversations.forms import Form, KeyMap, columns, recognise, used_keys
from spanloom.conversations.forms.unknown import PLAIN_TEXT
from spanloom.conversations.outcomes import Read, Rejected, in_file
from spanloom.conversations.turns import RecordRefusedError, Refusal
from spanloom.errors import RecordError, SourceError
from spanloom.families.harmony.convert.conversion import ChatConversion
from spanloom.records.arrow import saved_files
from spanloom.records.files import RecordPlace, passed_over, passed_over_line
from spanloom.records.json_lines import filled_lines, written_again
from spanloom.records.record_files import (
    SUFFIXES,
    RecordFile,
    find_record_files,
    read_records,
    unread_columns,
    unread_line,
)
from spanloom.records.unpacked import plain_suffix
from spanloom.workers import OnProgress

PROGRESS_EVERY = 256
LOOKED_AT = 1000
"""How many records are searched for the first one of a known form, and for the first conversation to show."""


@dataclass(frozen=True, kw_only=True)
class ChatInput:
    """The given places, their record files, and the first record of a known form, which all records must have.

    `unread_columns`: name → type of the columns of tables that JSON cannot hold, which are not read.
    """

    places: tuple[Path, ...]
    files: tuple[RecordFile, ...]
    form: Form
    first: Read
    unread_columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(file.state.bytes for file in self.files)

    def not_read(self) -> list[str]:
        """The names of other files in the given folders."""
        read = {file.path for file in self.files}
        folders = [place for place in self.places if place.is_dir() and saved_files(place) is None]
        return [name for place in folders for name in passed_over(place, read)]

    def described(self) -> list[str]:
        """Lines for the user: the files, and the recognised form of the records."""
        kinds = sorted({file.kind for file in self.files})
        named = ", ".join(file.name for file in self.files[:3]) + (" …" if len(self.files) > 3 else "")
        count = f"{len(self.files)} files" if len(self.files) > 1 else "1 file"
        names = self.not_read()
        lines = [f"{count} ({', '.join(kinds)}): {named}", *([passed_over_line(names)] if names else [])]
        if suffixes := sorted({plain_suffix(Path(name)) for name in names if name.endswith(SUFFIXES)}):
            lines.append(f"  {' and '.join(suffixes)} beside data describes it; to read such a file, name it")
        lines += [unread_line(self.unread_columns)] if self.unread_columns else []
        return lines + self.form.described(self.first.value)


def open_chat(places: Sequence[Path], conversion: ChatConversion) -> ChatInput:
    """Finds the files and recognises the form. Raises SourceError if none of the first records has a known form."""
    for place in places:
        if place.suffix == ".txt" and place.is_file():
            raise SourceError("plain text holds no conversations", where=str(place), remedy=PLAIN_TEXT)
        if place.is_file() and not place.stat().st_size:
            raise SourceError("the file is empty", where=str(place), remedy="give a file with chat data")
        if place.is_file() and (wide := _wide_encoding(place)):
            remedy = f"iconv -f {wide} -t UTF-8 {shlex.quote(str(place))} > {shlex.quote('utf8_' + place.name)}"
            raise SourceError(f"the file is {wide}, not UTF-8", where=str(place), remedy=remedy)
    files = find_record_files(places)
    keys = conversion.keys
    fault: SourceError | None = None
    unread: SourceError | None = None
    unread_columns_of = _unread_columns(files, conversion)
    for read in islice(reads_of(files, keys), LOOKED_AT):
        if read.fault is not None:
            path = next(file.path for file in files if file.name == read.file)
            unread = unread or SourceError(
                f"there is no record that can be read: {read.fault}",
                where=read.where,
                remedy=written_again(read.fault, path) or "fix the file, or give chat data",
            )
            continue
        try:
            form = recognise(read.value, keys, read.where)
        except SourceError as unknown:
            fault = fault or SourceError(unknown.what, where=unknown.where, remedy=in_file(unknown.remedy, read.where))
        except RecordRefusedError as refused:
            helps = in_file(refused.remedy, read.where) or "fix the first record"
            fault = fault or SourceError(refused.detail, where=read.where, remedy=helps)
        else:
            return ChatInput(
                places=tuple(places), files=tuple(files), form=form, first=read, unread_columns=unread_columns_of
            )
    nothing = "there is no record that can be read"
    error = fault or unread or SourceError(nothing, where=str(places[0]), remedy="give chat data")
    if unread_columns_of:
        raise SourceError(f"{error.what}; {unread_line(unread_columns_of)}", where=error.where, remedy=error.remedy)
    raise error


def _unread_columns(files: Sequence[RecordFile], conversion: ChatConversion) -> dict[str, str]:
    """Name → type of the columns of tables that are not read. Raises SourceError if an option names one."""
    keys, unread = conversion.keys, dict[str, str]()
    asked = {*conversion.metadata, *chain.from_iterable(pair.partition("=")[2].split("+") for pair in conversion.maps)}
    for file in files:
        columns = unread_columns(file, used_keys(keys))
        if names := sorted(asked & columns.keys()):
            raise SourceError(
                f"an option names the column {names[0]}, which is {columns[names[0]]}: JSON has no such values",
                where=str(file.path),
                remedy="cast the column to text or numbers, or leave it out of --map and --metadata",
            )
        unread |= columns
    return unread


def _wide_encoding(path: Path) -> str | None:
    """The encoding that a byte order mark names, other than UTF-8."""
    with path.open("rb") as file:
        begin = file.read(4)
    if begin in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE):  # the first begins with the mark of UTF-16
        return "UTF-32"
    return "UTF-16" if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else None


def reopened(chat: ChatInput, conversion: ChatConversion) -> ChatInput:
    """The same files, with the form recognised again under other options."""
    return replace(chat, form=recognise(chat.first.value, conversion.keys, chat.first.where))


def remedy_of(rejected: Rejected, chat: ChatInput) -> str | None:
    """The remedy for a refused record that its file decides: almost JSON, or a file that describes the data."""
    file = next((file for file in chat.files if file.name == rejected.read.file), None)
    if file is None:
        return None
    if again := written_again(rejected.read.fault, file.path):
        return again
    if rejected.reason == Refusal.NO_MESSAGES and len(chat.files) > 1 and not _is_of_form(file, chat.form.keys):
        others = [shlex.quote(str(other.path)) for other in chat.files if _is_of_form(other, chat.form.keys)]
        return f"the file holds no chat data: name those that do: {' '.join(others)}"
    return None


def _is_of_form(file: RecordFile, keys: KeyMap) -> bool:
    """Whether the first record of a file has a known form."""
    for read in reads_of([file], keys):
        if read.fault is not None:
            continue
        try:
            recognise(read.value, keys, read.where)
        except (SourceError, RecordRefusedError):
            return False
        return True
    return False


def text_beside(chat: ChatInput) -> tuple[str, tuple[str, ...]] | None:
    """The first key in the first records that looks like a part of the question, and the keys of the question."""
    if chat.form.kind is not columns.COLUMNS:
        return None
    for read in islice(reads_of(chat.files, chat.form.keys), LOOKED_AT):
        record = read.value
        if isinstance(record, dict):
            fields = {meaning: chat.form.keys.found(meaning, record) for meaning in chat.form.kind.meanings}
            if fields["query"] and (key := columns.beside(record, fields, chat.form.keys)) is not None:
                return key, fields["query"]
    return None


def reads_of(
    files: Sequence[RecordFile], keys: KeyMap, on_progress: OnProgress | None = None, *, as_lines: bool = False
) -> Iterator[Read]:
    """The records of all files in order, including unreadable ones. `as_lines`: records of JSON Lines stay unparsed
    lines, for workers to parse."""
    used = used_keys(keys)
    total = sum(file.state.bytes for file in files)
    before, number = 0, 0
    for file in files:
        faults: list[RecordError] = []
        left_out: list[str] = []
        unread = tuple(unread_columns(file, used))
        reached = 0

        def read_to(count: int) -> None:
            nonlocal reached
            reached = count

        lines_alone = as_lines and file.kind == "JSON Lines"
        for where, value in (
            filled_lines(file.path, read_to)
            if lines_alone
            else read_records(
                file, faults.append, read_to, used=used, needed=used | keys.metadata, left_out=left_out.extend
            )
        ):
            yield from _faults(file, faults)
            if lines_alone:
                yield Read(file=file.name, number=where.number, where=where, line=value)
            else:
                yield Read(file=file.name, number=where.number, where=where, value=value, unread=(*unread, *left_out))
                left_out.clear()
            number += 1
            if on_progress is not None and number % PROGRESS_EVERY == 0:
                on_progress(min(before + reached, total), total)
        yield from _faults(file, faults)
        before += file.state.bytes
        if on_progress is not None:
            on_progress(before, total)


def _faults(file: RecordFile, faults: list[RecordError]) -> Iterator[Read]:
    for fault in faults:
        assert isinstance(fault.where, RecordPlace)
        yield Read(file=file.name, number=fault.where.number, where=fault.where, fault=fault.what)
    faults.clear()
