"""Documents that are the source's without doubt, found for many at once.

In: documents as the rows give them, their arrays on disk. Out: which of them have exactly the messages, texts and
labels of their rows. `accounts` looks at each of the others by itself, and says what differs.

The bytes of all tokens are compared with those of headers and texts, end to end. A document passes only where its
headers and ends are openai-harmony's tokens, and no other token is special; `<|start|>` has a byte in the comparison
that no text has, so that the same bytes in other messages differ.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.families.harmony.tokenizer import EOD, START
from spanloom.families.harmony.verify.reference import ShownDocument
from spanloom.supervision import SPAN_CONTEXT
from spanloom.tokenizers.o200k.vocabulary import load_vocabulary
from spanloom.tokenizers.token_texts import joined, places_of

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_START_BYTE = b"\xff"
"""Stands for `<|start|>`: UTF-8 has no such byte."""


@dataclass(frozen=True, kw_only=True)
class Wrapper:
    """openai-harmony's tokens of a message up to its text, and the one that ends it."""

    header: tuple[int, ...]
    closer: int


@dataclass(frozen=True, kw_only=True)
class Accounted:
    """A document of a row. `messages`: the wrapper and the text of each, in UTF-8; `arrays`: as on disk, tokens int32
    [T], lossmask and span uint8 [T]."""

    shown: ShownDocument
    messages: Sequence[tuple[Wrapper, bytes]]
    arrays: Mapping[str, npt.NDArray[Any]]

    def has_all_messages(self) -> bool:
        """Whether it begins with a message, and has as many as it must."""
        tokens: npt.NDArray[np.int32] = self.arrays["tokens"]
        return tokens[:1].tolist() == [START] and int(np.count_nonzero(tokens == START)) == len(self.messages)


class TokenBytes:
    """The bytes of the tokens of o200k, from the verified asset. Special tokens have none, but for `<|start|>`."""

    def __init__(self, asset: Path) -> None:
        pieces = list(load_vocabulary(asset, {}).pieces)
        self.specials = len(pieces)
        """The first id that is no ordinary token."""
        pieces += [b""] * (START - len(pieces)) + [_START_BYTE, b""]
        self.size = len(pieces)
        """The number of ids in the table. The last one stands for all others."""
        self._pieces = pa.array(pieces, pa.large_binary())

    def ids(self, tokens: npt.NDArray[np.int32]) -> Ints:
        """The ids of tokens in the table, int64 [T]."""
        return places_of(tokens, self.size)

    def of(self, tokens: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.uint8], Ints]:
        """The bytes of tokens int32 [T] end to end, uint8 [B], and where each begins, with the end of the last, int64
        [T + 1]."""
        return joined(self._pieces, self.ids(tokens))

    def as_json(self, ids: Ints, more: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], Ints]:
        """The same for ids int64 [T] of the table, as they are within a text in JSON. `more`: what ids from `size` on
        stand for."""
        return joined(pa.concat_arrays([self._json_pieces, pa.array(more, pa.large_binary())]), ids)

    @cached_property
    def _json_pieces(self) -> pa.LargeBinaryArray:
        escaped = {character: json.dumps(chr(character[0]))[1:-1].encode() for character in map(bytes, _ESCAPED)}
        pieces = [
            _TO_ESCAPE.sub(lambda found: escaped[found[0]], piece) if _TO_ESCAPE.search(piece) else piece
            for piece in self._pieces.to_pylist()
        ]
        return pa.array(pieces, pa.large_binary())

    def text_of(self, tokens: Sequence[int]) -> bytes:
        """The bytes of a few tokens."""
        return self.of(np.array(tokens, np.int32))[0].tobytes()


_ESCAPED = [[code] for code in (*range(0x20), ord('"'), ord("\\"))]
_TO_ESCAPE = re.compile(rb'[\x00-\x1f"\\]')


@lru_cache(maxsize=1)
def token_bytes(asset: Path) -> TokenBytes:
    """The table of an asset, once per process. Raises TokenizerError."""
    return TokenBytes(asset)


HaveTexts = Callable[["Messages", Sequence[Any], TokenBytes], Bools]
"""Function: whether N documents have their texts, bool [N]."""


def are_equal(
    documents: Sequence[Accounted], table: TokenBytes, *, prompted: bool, have_texts: HaveTexts | None = None
) -> Bools:
    """Which of N documents are their rows', bool [N]. `prompted`: see `document_differences`; `have_texts`: other than
    by the texts in `Accounted`."""
    same = np.array([document.has_all_messages() for document in documents], np.bool_)
    if not same.any():
        return same
    documents = [documents[at] for at in np.flatnonzero(same).tolist()]
    messages = Messages.of(documents)
    equal = messages.are_wrapped([wrapper for each in documents for wrapper, _ in each.messages], table.specials)
    equal &= (have_texts or _have_texts)(messages, documents, table)
    labels = messages.labels(documents, prompted=prompted)
    for name, values in (("span", labels), ("lossmask", (labels != SPAN_CONTEXT).astype(np.uint8))):
        stored = np.concatenate([each.arrays[name] for each in documents])
        if not np.array_equal(stored, values):
            equal &= ~np.logical_or.reduceat(stored != values, messages.firsts)
    same[same] = equal
    return same


@dataclass(frozen=True)
class Messages:
    """N documents end to end, of M messages in all: tokens int32 [T]; the begin and the end of each document, int64
    [N]; the begin of each message, int64 [M]; the messages of each document, int64 [N]."""

    tokens: npt.NDArray[np.int32]
    firsts: Ints
    document_ends: Ints
    opens: Ints
    counts: Ints

    @classmethod
    def of(cls, documents: Sequence[Accounted]) -> "Messages":
        """Of documents that have all their messages."""
        tokens = np.concatenate([each.arrays["tokens"] for each in documents])
        ends = np.cumsum([each.arrays["tokens"].size for each in documents], dtype=np.int64)
        counts = np.array([len(each.messages) for each in documents], np.int64)
        return cls(tokens, np.append(0, ends[:-1]), ends, np.flatnonzero(tokens == START), counts)

    @property
    def lasts(self) -> Ints:
        """The number of the last message of each document, int64 [N]."""
        return np.cumsum(self.counts) - 1

    @property
    def message_firsts(self) -> Ints:
        """The number of the first message of each document, int64 [N]."""
        return self.lasts - self.counts + 1

    @property
    def ends(self) -> Ints:
        """The end of each message, int64 [M]: EOD is the last token of a document, and of no message."""
        ends = np.append(self.opens[1:], 0)
        ends[self.lasts] = self.document_ends - 1
        return ends

    def are_wrapped(self, wrappers: Sequence[Wrapper], specials: int) -> Bools:
        """Whether the messages of each document have these headers and ends, and no special token within, bool [N]."""
        tokens, ends = self.tokens, self.ends
        kinds: dict[int, list[int]] = {}
        for number, wrapper in enumerate(wrappers):  # a wrapper is kept once, see `Wrappers`
            kinds.setdefault(id(wrapper), []).append(number)
        wrapped = np.zeros(len(wrappers), np.bool_)
        special = np.zeros(len(wrappers), np.int64)
        for of_kind in kinds.values():
            wrapper, numbers = wrappers[of_kind[0]], np.array(of_kind)
            header = np.array(wrapper.header, np.int32)
            begins = self.opens[numbers]
            held = ends[numbers] - begins > header.size
            inside = np.minimum(begins[:, None] + np.arange(header.size), tokens.size - 1)
            alike = (tokens[inside] == header).all(axis=1) & (tokens[ends[numbers] - 1] == wrapper.closer)
            wrapped[numbers] = held & alike
            special[numbers] = np.count_nonzero(header >= specials) + 1
        expected = np.add.reduceat(special, self.message_firsts) + 1  # with EOD
        found = np.add.reduceat((tokens >= specials) | (tokens < 0), self.firsts, dtype=np.int64)
        closed = tokens[self.document_ends - 1] == EOD
        same: Bools = np.logical_and.reduceat(wrapped, self.message_firsts) & (expected == found) & closed
        return same

    def labels(self, documents: Sequence[Accounted], *, prompted: bool) -> npt.NDArray[np.uint8]:
        """The span of each label, uint8 [T]."""
        ends = self.ends
        spans = np.array([span for document in documents for span in document.shown.spans], np.int64)
        span = np.zeros(self.tokens.size + 1, np.uint8)
        lengths = ends - self.opens
        lengths[self.lasts] += 1  # EOD, which is context
        span[:-1] = np.repeat(np.abs(spans).astype(np.uint8), lengths)
        span[self.document_ends - 1] = SPAN_CONTEXT
        span[(ends - 1)[spans < 0]] = SPAN_CONTEXT  # truncated: what ends the message is not trained
        if prompted:
            placed = zip(self.message_firsts, documents, strict=True)
            runs = [first + len(run.shown) for first, each in placed for run in each.shown.runs]
            begins = self.opens[np.array(runs, np.int64)]
            span[begins] = span[begins + 1] = SPAN_CONTEXT
        labels = span[1:].copy()
        labels[self.document_ends - 1] = SPAN_CONTEXT
        return labels


def _have_texts(messages: Messages, documents: Sequence[Accounted], table: TokenBytes) -> Bools:
    """Whether the bytes of each document are those of its headers and texts, bool [N]."""
    data, edges = table.of(messages.tokens)
    headers: dict[int, bytes] = {}

    def pieces(document: Accounted) -> Iterator[bytes]:
        for wrapper, text in document.messages:
            if id(wrapper) not in headers:
                headers[id(wrapper)] = table.text_of(wrapper.header)
            yield headers[id(wrapper)]
            yield text

    ends = np.append(0, messages.document_ends)
    return are_those(data.tobytes(), edges[ends].tolist(), [b"".join(pieces(document)) for document in documents])


def are_those(data: bytes, edges: Sequence[int], wanted: Sequence[bytes]) -> Bools:
    """Whether `data`, cut at `edges`, [N + 1], is what is wanted, bool [N]."""
    if data == b"".join(wanted) and [0, *accumulate(map(len, wanted))] == edges:
        return np.ones(len(wanted), np.bool_)
    places = zip(pairwise(edges), wanted, strict=True)
    return np.array([data[begin:end] == each for (begin, end), each in places], np.bool_)
