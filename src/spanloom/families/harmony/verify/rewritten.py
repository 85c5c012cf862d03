"""Rows that are written again from the tokens of their documents, and compared with the source byte by byte.

In: rows with one document each, and its arrays on disk. Out: which of the rows are surely those of their documents.

    row     {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", …, "content": "Yes?"}]}
    form    {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", …, "content": "…"}]}
    tokens  <|start|>user<|message|> Hi <|end|><|start|>assistant … Yes? <|return|>

No rule looks at the texts of users, assistants and tools but whether they are empty. So the first row of a form is
parsed and judged, and what the rules say of it holds for each row that differs in these texts alone. All else is of
the form: roles, flags, tools, the texts of system and developer messages.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import orjson

from spanloom.families.harmony.tokenizer import CHANNEL, START
from spanloom.families.harmony.verify.accounts import Arrays, Wrappers
from spanloom.families.harmony.verify.equal import Accounted, Bools, Messages, TokenBytes, Wrapper, are_equal, are_those
from spanloom.families.harmony.verify.rules import AcceptedRow, RowRefused
from spanloom.families.harmony.verify.texts import message_texts
from spanloom.supervision import ranges

MOST_FORMS, MOST_ALIKE = 256, 4
"""Rows of a shard that are parsed for their forms, and forms whose documents have the same headers."""

TRIES = 64
"""Rows after which a form is given up that less than half of them had."""

_MARK, _MARKS = "\ue000{}\ue001", re.compile("\ue000([0-9]+)\ue001")

_LARGE = re.compile(rb"[0-9]{19}")

Key = bytes
"""The roles and channels of a document's messages, as tokens."""


@dataclass(kw_only=True, eq=False)
class Form:
    """What rows have in common that differ in texts alone.

    pieces    the JSON before, between and behind the texts
    order     which message of the document has each of the texts
    wrappers  of the messages, those of system and developer with their texts
    tried, fitted  how many rows were written in this form, and how many had it
    """

    accepted: AcceptedRow
    pieces: tuple[bytes, ...]
    order: tuple[int, ...]
    wrappers: tuple[Wrapper, ...]
    tried: int = 0
    fitted: int = 0

    def key(self) -> Key:
        headers = [wrapper.header for wrapper in self.wrappers]
        channels = [header[3] if len(header) > 3 and header[2] == CHANNEL else 0 for header in headers]
        return np.array([[header[1] for header in headers], channels], np.int32).T.tobytes()

    def may_be_of(self, row: bytes) -> bool:
        """Whether a row begins and ends as the form does, which is worth trying if it was for others."""
        is_used = self.tried < TRIES or 2 * self.fitted > self.tried
        return is_used and row.startswith(self.pieces[0]) and row.endswith(self.pieces[-1])


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A row, as JSON, and the arrays of its one document."""

    row: bytes
    arrays: Arrays


def _keys(candidates: Sequence[Candidate]) -> list[Key]:
    """Of the documents."""
    tokens = np.concatenate(
        [np.empty(0, np.int32), *(each.arrays["tokens"] for each in candidates), np.zeros(3, np.int32)]
    )
    edges = np.cumsum([0, *(each.arrays["tokens"].size for each in candidates)])
    opens = np.flatnonzero(tokens == START)
    channels = np.where(tokens[opens + 2] == CHANNEL, tokens[opens + 3], 0)
    keys = np.stack([tokens[opens + 1], channels], axis=1)
    return [keys[first:end].tobytes() for first, end in pairwise(np.searchsorted(opens, edges).tolist())]


@dataclass(kw_only=True)
class Forms:
    """The forms of a shard's rows. `accepting`: the JSON of a row → the row as the rules have it. Raises RowRefused."""

    accepting: Callable[[bytes], AcceptedRow]
    wrappers: Wrappers
    table: TokenBytes
    prompted: bool
    _forms: dict[Key, list[Form]] = field(default_factory=dict, init=False, repr=False)
    _parsed: int = field(default=0, init=False, repr=False)

    def of_rows(self, candidates: Sequence[Candidate]) -> list[AcceptedRow | None]:
        """Each row as the rules have it, if its document is surely the row's; else None."""
        found: list[AcceptedRow | None] = [None] * len(candidates)
        choices = [self._fitting(*each) for each in zip(_keys(candidates), candidates, strict=True)]
        for number in range(MOST_ALIKE):
            tried = [at for at, forms in enumerate(choices) if found[at] is None and len(forms) > number]
            written = [_Written.of(choices[at][number], candidates[at]) for at in tried]
            same = are_equal(written, self.table, prompted=self.prompted, have_texts=_are_rows)
            for at, each, is_same in zip(tried, written, same.tolist(), strict=True):
                each.form.tried += 1
                if is_same:
                    each.form.fitted += 1
                    found[at] = each.form.accepted
        for candidate, row, forms in zip(candidates, found, choices, strict=True):
            if row is None and forms:
                self._learn(candidate)
        return found

    def _fitting(self, key: Key, candidate: Candidate) -> list[Form]:
        """The forms that a row may have, by its begin and end and the headers of its document."""
        fitting = [form for form in self._forms.get(key, ()) if form.may_be_of(candidate.row)]
        if not fitting and (form := self._learn(candidate)) is not None and form.key() == key:
            return [form]
        return fitting

    def _learn(self, candidate: Candidate) -> Form | None:
        """The form of a row, which is remembered if it is new; None if there are too many."""
        if self._parsed >= MOST_FORMS:
            return None
        self._parsed += 1
        form = self._form(candidate.row)
        if form is None:
            return None
        alike = self._forms.setdefault(form.key(), [])
        alike[:] = [each for each in alike if each.may_be_of(each.pieces[0] + each.pieces[-1])]
        if len(alike) < MOST_ALIKE and all(each.pieces != form.pieces for each in alike):
            alike.append(form)
        return form

    def _form(self, row: bytes) -> Form | None:
        """The form of a row; None where its texts cannot be found in it."""
        if _MARK[0].encode() in row:
            return None
        try:
            texts: list[str] = []
            marked = _marked(json.loads(row), texts)
            accepted, again = self.accepting(row), self.accepting(orjson.dumps(marked))
        except (RowRefused, ValueError, TypeError, AttributeError, KeyError):
            return None
        order, wrappers = _order(accepted, again, len(texts)), self._wrappers(accepted)
        if order is None or wrappers is None:
            return None
        for written in (orjson.dumps(marked).decode(), json.dumps(marked, ensure_ascii=False)):
            pieces = tuple(piece.encode() for piece in _MARKS.split(written)[::2])
            if row == b"".join(_woven(pieces, [json.dumps(text, ensure_ascii=False)[1:-1].encode() for text in texts])):
                return Form(accepted=accepted, pieces=pieces, order=order, wrappers=wrappers)
        return None

    def _wrappers(self, accepted: AcceptedRow) -> tuple[Wrapper, ...] | None:
        """Those of the messages, of system and developer with their texts; None if openai-harmony refuses one."""
        messages = accepted.documents[0].messages
        last = len(messages) - 1
        numbers = [number for number, message in enumerate(messages) if message["role"] in _GENERATED]
        generated = [messages[number] for number in numbers]
        rendered = (self.wrappers.whole(generated, last=numbers[-1] == last) or []) if numbers else []
        whole = {
            number: Wrapper(header=tuple(tokens[:-1]), closer=tokens[-1])
            for number, tokens in zip(numbers, rendered, strict=False)
        }
        wrappers = [
            whole.get(number) if message["role"] in _GENERATED else self.wrappers.header(message, last=number == last)
            for number, message in enumerate(messages)
        ]
        known = tuple(wrapper for wrapper in wrappers if wrapper is not None)
        return known if len(known) == len(wrappers) else None


def plain_json(row: bytes | None) -> bytes | None:
    """A row as JSON in UTF-8 without escapes of single characters, which tokens do not show; None where a key may be in
    it twice, a number may be large, or it is no JSON in UTF-8.

    orjson keeps the last of two equal keys: then quotes are missing from what it writes. It reads integers of more than
    64 bits as floats.
    """
    try:
        if row is None or b"\\u" not in row:
            return row if row is None or row.isascii() else row.decode().encode()
        plain = None if _LARGE.search(row) else orjson.dumps(orjson.loads(row))
    except ValueError:
        return None
    return plain if plain and plain.count(b'"') == row.count(b'"') and b"\\u0022" not in row else None


_GENERATED = ("system", "developer")


def _marked(value: Any, texts: list[str]) -> Any:
    """A row with marks in place of the texts that no rule looks at, which are added to `texts`."""

    def mark(text: Any) -> Any:
        if type(text) is not str or not text:
            return text
        texts.append(text)
        return _MARK.format(len(texts) - 1)

    for message in value["messages"]:
        if message["role"] in _GENERATED:
            continue
        for key in message:  # in the order of the JSON
            if key == "tool_calls":
                for call in message[key] or ():
                    call["arguments"] = mark(call["arguments"])
            elif key in ("content", "reasoning") and type(message[key]) is list:
                for at, part in enumerate(message[key]):
                    if type(part) is dict:
                        part["text"] = mark(part["text"])
                    else:
                        message[key][at] = mark(part)
            elif key in ("content", "reasoning"):
                message[key] = mark(message[key])
    return value


def _order(accepted: AcceptedRow, marked: AcceptedRow, texts: int) -> tuple[int, ...] | None:
    """The message of each text. None unless the row is one document with all its messages, and each text is a message
    of its own."""
    if any(
        len(row.documents) != 1 or row.documents[0].places != [*range(len(accepted.messages))]
        for row in (accepted, marked)
    ):
        return None
    order = [-1] * texts
    for number, message in enumerate(marked.documents[0].messages):
        if message["role"] in _GENERATED:
            continue
        found = _MARKS.fullmatch("".join(message_texts(message) or ()))
        if found is None:
            return None
        order[int(found[1])] = number
    return tuple(order) if order and -1 not in order else None


def _woven(pieces: Sequence[bytes], texts: Sequence[bytes]) -> Iterator[bytes]:
    """The first piece, the first text, the second piece and so on."""
    for piece, text in zip(pieces, texts, strict=False):
        yield piece
        yield text
    yield pieces[-1]


@dataclass(frozen=True, kw_only=True)
class _Written(Accounted):
    """A document whose row is to be written again in a form."""

    form: Form
    row: bytes

    @classmethod
    def of(cls, form: Form, candidate: Candidate) -> "_Written":
        messages = [(wrapper, b"") for wrapper in form.wrappers]
        (shown,) = form.accepted.documents
        return cls(shown=shown, messages=messages, arrays=candidate.arrays, form=form, row=candidate.row)


def _are_rows(messages: Messages, documents: Sequence[_Written], table: TokenBytes) -> Bools:
    """Whether the rows are what their forms and the texts of their documents give, bool [N].

    The tokens of texts and, as further tokens, the pieces of the forms are brought into the order of the JSON.
    """
    headers = np.array([len(wrapper.header) for each in documents for wrapper, _ in each.messages], np.int64)
    begins = messages.opens + headers
    lengths = np.maximum(messages.ends - 1 - begins, 0)
    counts = np.array([len(each.form.order) for each in documents], np.int64)
    ends = np.cumsum(counts)
    number = np.arange(ends[-1])
    texts = np.concatenate([each.form.order for each in documents]) + np.repeat(messages.message_firsts, counts)
    # A document of K texts has K + 1 pieces, each text between two of them.
    of_text = 2 * number + 1 + np.repeat(np.arange(counts.size), counts)
    starts = np.zeros(2 * number.size + counts.size, np.int64)
    sizes = np.ones(starts.size, np.int64)
    is_piece = np.ones(starts.size, np.bool_)
    is_piece[of_text] = False
    starts[of_text], sizes[of_text] = begins[texts], lengths[texts]
    starts[is_piece] = messages.tokens.size + np.arange(np.count_nonzero(is_piece))
    forms = {id(each.form): each.form for each in documents}
    first = dict(zip(forms, np.cumsum([0, *(len(form.pieces) for form in forms.values())]).tolist(), strict=False))
    pieces = np.concatenate(
        [np.arange(len(each.form.pieces)) + (table.size + first[id(each.form)]) for each in documents]
    )
    tokens = np.concatenate([table.ids(messages.tokens), pieces])[ranges(starts, sizes)]
    data, edges = table.as_json(tokens, [piece for form in forms.values() for piece in form.pieces])
    last = np.cumsum(sizes)[2 * ends + np.arange(counts.size)]
    same = are_those(data.tobytes(), edges[np.append(0, last)].tolist(), [each.row for each in documents])
    has_text = np.zeros(lengths.size, np.bool_)
    has_text[texts] = True
    return same & np.logical_and.reduceat((lengths > 0) == has_text, messages.message_firsts)
