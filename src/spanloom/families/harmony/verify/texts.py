"""The texts of a row's messages against tiktoken: a second tokenizer, which no other part of rendering uses.

In: the messages that a document shows, its tokens as they are on disk. Out: where the content of a message is not what
tiktoken makes of its text. Texts of users, assistants and tools are looked at; those of system and developer messages
are put into words by openai-harmony alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from spanloom.dataset.validate.placed_documents import first_difference
from spanloom.families.harmony.tokenizer import CALL, END, EOD, MESSAGE, RETURN, START

if TYPE_CHECKING:
    import tiktoken

ROLES = ("user", "assistant", "tool")
TEXTS_KEPT = 4096
"""Texts whose tokens are remembered: the documents of one conversation show the same texts, one after the other."""


@dataclass
class TextCheck:
    """Counts the `texts` that it has encoded, and the `documents` that it has looked at."""

    encoding: "tiktoken.Encoding"
    texts: int = field(default=0, init=False)
    documents: int = field(default=0, init=False)
    _encoded: Callable[[str], npt.NDArray[np.int32]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        encode = self.encoding.encode_ordinary
        self._encoded = lru_cache(TEXTS_KEPT)(lambda text: np.array(encode(text), dtype=np.int32))

    def differences(
        self, messages: Sequence[Mapping[str, Any]], tokens: npt.NDArray[np.int32]
    ) -> Iterator[tuple[int, str]]:
        """Offset in the document, and what is wrong there, for each text. `tokens` int32 [T], the document with EOD."""
        self.documents += 1
        starts = np.flatnonzero(tokens == START).tolist()
        if len(starts) != len(messages):
            yield 0, f"{len(starts)} messages begin in the document, the source has {len(messages)}"
            return
        for message, (first, last) in zip(messages, pairwise([*starts, tokens.size]), strict=True):
            texts = _texts(message["content"])
            if message["role"] in ROLES and texts is not None:
                yield from self._difference(texts, tokens[first:last], first)

    def _difference(self, texts: list[str], tokens: npt.NDArray[np.int32], first: int) -> Iterator[tuple[int, str]]:
        self.texts += len(texts)
        expected = np.concatenate([_NOTHING, *map(self._encoded, texts)])
        opening = np.flatnonzero(tokens == MESSAGE)
        begin = int(opening[0]) + 1 if opening.size else tokens.size
        stored = tokens[begin:]
        closing = np.flatnonzero(np.isin(stored, _CLOSING))
        stored = stored[: closing[0]] if closing.size else stored
        if not np.array_equal(stored, expected):
            at = first_difference(stored.tolist(), expected.tolist())
            around = self.encoding.decode(expected[max(at - 8, 0) : at + 8].tolist())
            ids = f"tiktoken gives {expected[at : at + 1].tolist()}, the dataset has {stored[at : at + 1].tolist()}"
            yield first + begin + at, f"{ids}, around {around!r}"


_NOTHING = np.empty(0, dtype=np.int32)
_CLOSING = (END, RETURN, CALL, EOD)


def _texts(content: Any) -> list[str] | None:
    """The texts of a message's content, each of which is encoded by itself, or None where it is not text alone."""
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content] if all(part["type"] == "text" for part in content) else None
