"""Texts whose characters remember their source field through the operations of a Jinja template.

In: a text and the number of its field. Out: a `str` with marks. Slices, joins, `+`, `*`, strip, replace, split, format,
and JSON keep the marks; changed letters (`upper`) keep them as altered; any other operation gives a plain text, whose
characters belong to no field.

    traced("Paris", 7)[1:] + "!"   text 'aris!', marks ((0, 4, 7, 1, 5, True),)

A mark is (start, end, field, first, last, exact): the characters [start, end) of this text are the characters
[first, last) of the field. `exact` is False if they were changed. One character of the field may become several of the
text (`\\n` in JSON); then `end - start` differs from `last - first`, which is 1.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from string import Formatter
from typing import Any, SupportsIndex

Mark = tuple[int, int, int, int, int, bool]

_ESCAPED = re.compile(r'[\x00-\x1f\\"]')
_ESCAPED_ASCII = re.compile(r'[\x00-\x1f\\"]|[^ -~]')
_PERCENT = re.compile(r"%(?:%|s|\((\w+)\)s)")


class TracedText(str):
    """A text with marks, sorted by position. Compares and hashes like the plain text."""

    __slots__ = ("_marks",)
    _marks: tuple[Mark, ...]

    def __new__(cls, text: str = "", marks: tuple[Mark, ...] = ()) -> "TracedText":
        self = super().__new__(cls, str.__str__(text))
        self._marks = marks
        return self

    def __reduce__(self) -> tuple[type["TracedText"], tuple[str, tuple[Mark, ...]]]:
        return TracedText, (plain_text(self), self._marks)  # pickle's own way takes 1.5 times as long

    def __str__(self) -> str:
        return self

    def __format__(self, spec: str) -> str:
        return self if not spec else str.__format__(self, spec)

    def __add__(self, other: str) -> str:
        return joined((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        return joined((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: SupportsIndex) -> str:
        return joined([self] * index(count))

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> str:
        return percent_formatted(self, values)

    def __rmod__(self, template: str) -> str:
        return percent_formatted(template, self)

    def __iter__(self) -> Iterator[str]:
        return (self[at] for at in range(len(self)))

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if isinstance(key, slice):
            start, stop, step = key.indices(len(self))
            if step != 1:
                return joined([self[at] for at in range(start, stop, step)])
            return self._part(start, max(start, stop))
        at = index(key)
        at += len(self) if at < 0 else 0
        if not 0 <= at < len(self):
            raise IndexError("string index out of range")
        return self._part(at, at + 1)

    def _part(self, start: int, stop: int) -> "TracedText":
        text = str.__getitem__(self, slice(start, stop))
        return TracedText(text, tuple(_cut(self._marks, start, stop)))

    # Methods of str that move or cut text.

    def strip(self, chars: str | None = None, /) -> str:
        start = len(self) - len(str.lstrip(self, chars))
        return self._part(start, max(start, len(str.rstrip(self, chars))))

    def lstrip(self, chars: str | None = None, /) -> str:
        return self._part(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> str:
        return self._part(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return self._part(len(prefix) if self.startswith(prefix) else 0, len(self))

    def removesuffix(self, suffix: str, /) -> str:
        return self._part(0, len(self) - (len(suffix) if self.endswith(suffix) else 0))

    def join(self, parts: Iterable[str], /) -> str:
        pieces = list(parts)
        str.join(self, pieces)  # raises TypeError if a part is not a str
        between = [piece for part in pieces for piece in (self, part)]
        return joined(between[1:])

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        most = index(count)
        if not old:  # between all characters
            plain = str.replace(self, old, new, most)
            return TracedText(plain) if most == 0 or plain == self else _altered(self, plain)
        places = list(_places(self, old, most))
        if not places:
            return self
        pieces: list[str] = []
        end = 0
        for place in places:
            pieces += [self._part(end, place), new]
            end = place + len(old)
        return joined([*pieces, self._part(end, len(self))])

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._located(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        if sep is None:
            return [TracedText(part) for part in str.rsplit(self, sep, maxsplit)]
        return self._located(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[str]:
        parts: list[str] = []
        end = 0
        for whole, line in zip(str.splitlines(self, True), str.splitlines(self, keepends), strict=True):
            parts.append(self._part(end, end + len(line)))
            end += len(whole)
        return parts

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        before, middle, _ = str.partition(self, sep)
        end = len(before) + len(middle)
        return self._part(0, len(before)), self._part(len(before), end), self._part(end, len(self))

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        before, middle, _ = str.rpartition(self, sep)
        end = len(before) + len(middle)
        return self._part(0, len(before)), self._part(len(before), end), self._part(end, len(self))

    def _located(self, parts: list[str], sep: str | None) -> list[str]:
        """The parts of a split with their marks, in order. Between them is `sep`, or white space."""
        located: list[str] = []
        end = 0
        for part in parts:
            start = end if sep is not None else str.find(self, part, end)
            located.append(self._part(start, start + len(part)))
            end = start + len(part) + len(sep or "")
        return located

    # Methods of str that change letters, or pad.

    def upper(self) -> str:
        return _altered(self, str.upper(self))

    def lower(self) -> str:
        return _altered(self, str.lower(self))

    def capitalize(self) -> str:
        return _altered(self, str.capitalize(self))

    def title(self) -> str:
        return _altered(self, str.title(self))

    def swapcase(self) -> str:
        return _altered(self, str.swapcase(self))

    def casefold(self) -> str:
        return _altered(self, str.casefold(self))

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        return _altered(self, str.expandtabs(self, tabsize))

    def center(self, width: SupportsIndex, fillchar: str = " ", /) -> str:
        filled = str.center(self, width, fillchar)
        start = filled.find(self)
        return joined((filled[:start], self, filled[start + len(self) :]))

    def ljust(self, width: SupportsIndex, fillchar: str = " ", /) -> str:
        return joined((self, str.ljust(self, width, fillchar)[len(self) :]))

    def rjust(self, width: SupportsIndex, fillchar: str = " ", /) -> str:
        filled = str.rjust(self, width, fillchar)
        return joined((filled[: len(filled) - len(self)], self))


def traced(text: str, field: int) -> TracedText:
    """A text whose characters all come from one field."""
    return TracedText(text, ((0, len(text), field, 0, len(text), True),) if text else ())


def plain_text(text: str) -> str:
    """The text without marks, as `str`."""
    return str.__getitem__(text, slice(None))


def marks_of(text: str) -> tuple[Mark, ...]:
    """The marks of a text, adjacent ones merged where possible; empty for a plain text."""
    if not isinstance(text, TracedText):
        return ()
    whole: list[Mark] = []
    for mark in text._marks:
        if whole:
            start, end, field, first, last, exact = whole[-1]
            linear = end - start == last - first and mark[1] - mark[0] == mark[4] - mark[3]
            if mark[0] == end and mark[2] == field and mark[3] == last and exact and mark[5] and linear:
                whole[-1] = (start, mark[1], field, first, mark[4], True)
                continue
        whole.append(mark)
    return tuple(whole)


def joined(parts: Iterable[str]) -> str:
    """Concatenates texts: `"".join` that keeps marks. A plain `str` if no text has marks."""
    pieces = parts if isinstance(parts, list | tuple) else list(parts)
    text = "".join(pieces)
    marks: list[Mark] = []
    at = 0
    for piece in pieces:
        if type(piece) is TracedText:
            for start, end, field, first, last, exact in piece._marks:
                marks.append((at + start, at + end, field, first, last, exact))
        at += len(piece)
    return TracedText(text, tuple(marks)) if marks else text


def percent_formatted(template: str, values: Any) -> str:
    """`template % values`, with the marks of texts that replace a plain `%s` or `%(name)s`."""
    plain = str.__mod__(template, values)
    pieces: list[str] = []
    end = number = 0
    listed = values if isinstance(values, tuple) else (values,)
    for match in _PERCENT.finditer(template):
        pieces.append(template[end : match.start()])
        if match[0] == "%%":
            pieces.append("%")
        elif match[1] is not None:
            pieces.append(str(values[match[1]]) if isinstance(values, Mapping) else "")
        else:
            pieces.append(str(listed[number]) if number < len(listed) else "")
            number += 1
        end = match.end()
    return _if_equal(joined([*pieces, template[end:]]), plain)


def brace_formatted(template: str, args: Sequence[Any], kwargs: Mapping[str, Any], plain: str) -> str:
    """`plain`, which the sandbox made by `template.format`, with the marks of texts in `{}`, `{0}` and `{name}`."""
    pieces: list[str] = []
    at, number = 0, 0
    for literal, name, spec, conversion in Formatter().parse(template):
        if isinstance(template, TracedText) and template[at : at + len(literal)] == literal:
            literal = template[at : at + len(literal)]
        at += len(literal)
        pieces.append(literal)
        if name is None:
            continue
        at = template.find("}", at) + 1
        key: int | str = number if name == "" else int(name) if name.isdecimal() else name
        number += name == ""
        value = args[key] if isinstance(key, int) and key < len(args) else kwargs.get(str(key))
        if spec or conversion or value is None:
            return plain
        pieces.append(str(value))
    return _if_equal(joined(pieces), plain)


def json_text(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """`json.dumps` of a value, with the marks of the texts in it."""
    plain = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if not _has_marks(value):
        return plain
    between, colon = separators if separators else (", " if indent is None else ",", ": ")
    step = " " * indent if isinstance(indent, int) else indent
    escaped = _ESCAPED_ASCII if ensure_ascii else _ESCAPED
    pieces: list[str] = []

    def put(item: Any, depth: int) -> None:
        if isinstance(item, str):
            pieces.append(_quoted(item, escaped, ensure_ascii))
        elif isinstance(item, Mapping) and item:
            pairs = sorted(item.items()) if sort_keys else item.items()
            lead = "{"
            for key, inside in pairs:
                pieces.append(lead + line(depth + 1))
                put(key if isinstance(key, str) else json.loads(json.dumps({key: 0})[1:-4]), depth + 1)
                pieces.append(colon)
                put(inside, depth + 1)
                lead = between
            pieces.append(line(depth) + "}")
        elif isinstance(item, list | tuple) and item:
            lead = "["
            for inside in item:
                pieces.append(lead + line(depth + 1))
                put(inside, depth + 1)
                lead = between
            pieces.append(line(depth) + "]")
        else:
            pieces.append(json.dumps(item, ensure_ascii=ensure_ascii))

    def line(depth: int) -> str:
        return "" if step is None else "\n" + step * depth

    put(value, 0)
    return _if_equal(joined(pieces), plain)


def _quoted(text: str, escaped: re.Pattern[str], ensure_ascii: bool) -> str:
    whole = json.dumps(text, ensure_ascii=ensure_ascii)
    if not isinstance(text, TracedText) or not text._marks:
        return whole
    if len(whole) == len(text) + 2:
        return joined(('"', text, '"'))
    pieces: list[str] = ['"']
    end = 0
    for match in escaped.finditer(text):
        at = match.start()
        letter = json.dumps(match[0], ensure_ascii=ensure_ascii)[1:-1]
        pieces += [
            text[end:at],
            TracedText(letter, tuple((0, len(letter), *mark[2:]) for mark in _cut(text._marks, at, at + 1))),
        ]
        end = at + 1
    return joined([*pieces, text[end:], '"'])


def _has_marks(value: Any) -> bool:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, TracedText):
            return True
        if isinstance(item, Mapping):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
    return False


def _cut(marks: tuple[Mark, ...], start: int, stop: int) -> Iterator[Mark]:
    """The marks of the characters [start, stop), counted from `start`."""
    for begin, end, field, first, last, exact in marks:
        low, high = max(begin, start), min(end, stop)
        if low >= high:
            continue
        if low == begin and high == end:
            yield low - start, high - start, field, first, last, exact
        elif exact and end - begin == last - first:
            yield low - start, high - start, field, first + low - begin, last - (end - high), True
        else:  # part of an escape, or of changed text
            yield low - start, high - start, field, first, last, False


def _altered(text: TracedText, changed: str) -> TracedText:
    """The changed text with one inexact mark, of the first field of `text`."""
    if changed == text:
        return text
    fields = dict.fromkeys(mark[2] for mark in text._marks)
    if not changed or not fields:
        return TracedText(changed)
    field = next(iter(fields))
    return TracedText(changed, ((0, len(changed), field, 0, 0, False),))


def _if_equal(traced_text: str, plain: str) -> str:
    """The traced text if it equals `plain`; otherwise `plain`, without marks."""
    return traced_text if traced_text == plain else plain


def _places(text: str, old: str, most: int) -> Iterator[int]:
    place = str.find(text, old)
    while place >= 0 and most != 0:
        yield place
        most -= 1
        place = str.find(text, old, place + len(old))
