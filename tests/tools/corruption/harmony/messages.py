"""Documents of Harmony as messages that a forgery changes; labels, counts and manifest follow.

In: a `corruption.dataset.Document`. Out: its messages; the document with other tokens or labels. Nothing of spanloom is
used: the format is read here from its description.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tools.corruption.dataset import Document

EOD, RETURN, CONSTRAIN, CHANNEL, START, END, MESSAGE, CALL = (
    199999,
    200002,
    200003,
    200005,
    200006,
    200007,
    200008,
    200012,
)
"""Of o200k_harmony."""

_ROLES = {1428: "user", 17360: "system", 77944: "developer", 173781: "assistant"}
_CHANNELS = {35644: "analysis", 17196: "final", 12606: "commentary"}


@dataclass(frozen=True)
class Part:
    """A message: its tokens from `begin` to `end`, its text from `body`, and the label of its text.

    `kind`: the role, of the assistant the channel, or `call`.
    """

    kind: str
    begin: int
    body: int
    end: int
    span: int


def parts(document: Document) -> list[Part]:
    """The messages of a document."""
    tokens = document.tokens
    opens = [*np.flatnonzero(tokens == START).tolist(), tokens.size - 1]
    found = []
    for begin, end in itertools.pairwise(opens):
        body = begin + int(np.flatnonzero(tokens[begin:end] == MESSAGE)[0]) + 1
        kind = _ROLES.get(int(tokens[begin + 1]), "tool")
        if kind == "assistant":
            channel = begin + int(np.flatnonzero(tokens[begin:end] == CHANNEL)[0]) + 1
            kind = "call" if tokens[end - 1] == CALL else _CHANNELS[int(tokens[channel])]
        found.append(Part(kind=kind, begin=begin, body=body, end=end, span=int(document.span[body - 1])))
    return found


def label(document: Document, begin: int, end: int, span: int) -> None:
    """Gives the tokens from `begin` to `end` a span; a label is one place before its token."""
    document.span[begin - 1 : end - 1] = span
    document.lossmask[begin - 1 : end - 1] = span > 0


def replaced(document: Document, begin: int, end: int, tokens: Sequence[int]) -> None:
    """Puts other tokens in place of those from `begin` to `end`, with the label of the first one."""
    labels = np.concatenate([[0], document.span[:-1]])
    kept = [labels[:begin], np.full(len(tokens), labels[begin]), labels[end:]]
    document.tokens = np.concatenate([document.tokens[:begin], tokens, document.tokens[end:]]).astype(np.int32)
    document.span = np.concatenate([*kept, [0]])[1:].astype(np.uint8)
    document.lossmask = (document.span > 0).astype(np.uint8)
