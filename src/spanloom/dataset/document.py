"""A document prepared for display: its tokens with their text, cut into messages. The input of the views.

In: nothing; these are carriers, filled by `spanloom.dataset.inspect`. All supervision is given twice: token-aligned
(what a token *is*) and as on disk (what its position *learns*).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

LEVELS = (0.5, 0.1, 0.01, 0.001)
"""Probabilities that the colours of scores divide: level 0 is at least the first, level 4 is below the last."""


@dataclass(frozen=True, kw_only=True)
class ShownScore:
    """What a teacher expected at a token, as log-probabilities.

    own   of the token itself; at least that, if it is not `exact`
    top   the most probable tokens, the first the most probable: id, text, log-probability
    rest  of all other tokens together
    """

    own: float
    exact: bool = True
    top: tuple[tuple[int, str, float], ...]
    rest: float

    @property
    def level(self) -> int:
        """0 … 4: 0 for an expected token, 4 for the most surprising ones."""
        return sum(math.exp(self.own) < level for level in LEVELS)

    def as_dict(self) -> dict[str, Any]:
        """The score as JSON; `top` without texts."""
        return {
            "own": self.own if self.exact else None,
            "top": [[token, value] for token, _, value in self.top],
            "rest": self.rest,
        }


@dataclass(frozen=True, kw_only=True)
class ShownToken:
    """One token.

    text     the text it adds, a special token's name, or "": a character made of several tokens is at the token that
             completes it
    piece    its bytes; empty for a special token
    partial  it begins or ends inside a character
    span     token-aligned: 0 context, else a trained span; `trained` likewise
    disk     (loss mask, span id) at this position on disk: they describe the *next* token, the label
    score    what a teacher expected here; None without a teacher, and where it scored nothing
    """

    id: int
    text: str
    piece: bytes
    special: bool
    header: bool
    partial: bool
    span: int
    trained: bool
    disk: tuple[int, int]
    score: ShownScore | None = None


@dataclass(frozen=True, kw_only=True)
class ShownMessage:
    """Tokens `first` … `last - 1` of a document. The EOD is a message of its own, without a role."""

    first: int
    last: int
    role: str
    channel: str
    span: int
    trained: bool

    @classmethod
    def of(cls, token: ShownToken, first: int, last: int, *, role: str, channel: str = "") -> "ShownMessage":
        """A message with the `span` and `trained` of `token`, which represents it."""
        return cls(first=first, last=last, role=role, channel=channel, span=token.span, trained=token.trained)


@dataclass(frozen=True, kw_only=True)
class ShownDocument:
    """One document and its origin, as far as its family records it. `span_names[span]` names a span.

    `row`: the source row; `id`: its id there; `groups`: column → value, such as its language.
    """

    split: str
    shard: int
    sequence: int
    row: int | None
    id: str | None
    groups: dict[str, str | None]
    span_names: tuple[str, ...]
    tokens: tuple[ShownToken, ...]
    messages: tuple[ShownMessage, ...]
    notes: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"{self.split}/{self.shard:02d}/{self.sequence}"

    @property
    def scored(self) -> bool:
        """Whether a token has the score of a teacher."""
        return any(token.score is not None for token in self.tokens)

    @property
    def span_tokens(self) -> list[int]:
        """Number of labels of each span, as on disk."""
        return [sum(token.disk[1] == span for token in self.tokens) for span in range(len(self.span_names))]

    def as_dict(self) -> dict[str, Any]:
        """The document as JSON. Each list in `tokens` has one value per token: what the token is, not its label. Only
        with the scores of a teacher it has `teacher`: for each token, its log-probability, the `top` tokens with
        theirs, and that of the `rest`; null where nothing was scored."""
        scores = [None if token.score is None else token.score.as_dict() for token in self.tokens]
        return {
            "address": self.address,
            "id": self.id,
            "row": self.row,
            "groups": self.groups,
            "notes": list(self.notes),
            "span_names": list(self.span_names),
            "labels": dict(zip(self.span_names, self.span_tokens, strict=True)),
            "messages": [
                {
                    "role": message.role,
                    "channel": message.channel,
                    "first": message.first,
                    "last": message.last,
                    "text": "".join(token.text for token in self.tokens[message.first : message.last]),
                }
                for message in self.messages
            ],
            "tokens": {
                "ids": [token.id for token in self.tokens],
                "texts": [token.text for token in self.tokens],
                "spans": [token.span for token in self.tokens],
                "trained": [int(token.trained) for token in self.tokens],
                **({"teacher": scores} if self.scored else {}),
            },
        }


def cut_before_eod(
    tokens: Sequence[ShownToken], eod: int, begins: Callable[[int], bool]
) -> Iterator[tuple[int, int, bool]]:
    """Cuts a document at the positions where `begins` is true: `(first, last, is_eod)` of each piece, positions `first`
    … `last - 1`. The closing EOD is a piece of its own, with `is_eod` true."""
    closing = len(tokens) - 1 if tokens and tokens[-1].id == eod else len(tokens)
    edges = [0, *filter(begins, range(1, closing)), closing, len(tokens)]
    for first, last in pairwise(dict.fromkeys(edges)):
        yield first, last, first >= closing


def shown_parts(first: int, last: int, count: int, most: int) -> tuple[range, int, range]:
    """Which of the positions `first` … `last - 1` are shown if at most `most` of the document's `count` tokens are
    (0: all): half of them at its beginning, half at its end. Returns the positions before the gap, the number of
    positions in the gap, and the positions after it.

    a document of 10, most 4: 0 1 and 8 9 are shown; of the message 1 … 8: 1, then 6 left out, then 8
    """
    if most <= 0 or count <= most:
        return range(first, last), 0, range(last, last)
    gap = range(most - most // 2, count - most // 2)
    head = range(first, max(first, min(last, gap.start)))
    tail = range(min(last, max(first, gap.stop)), last)
    return head, tail.start - head.stop, tail
