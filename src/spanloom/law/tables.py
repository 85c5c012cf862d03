"""A grammar as lookup tables by token id.

In: a grammar, the tokenizer. Out: `Tables`: a byte of flags for each id, the headers as arrays.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from spanloom.law.grammar import Beginnings, Grammar
from spanloom.tokenizers.encoding import JsonTokenizer

HEADER, STOP, CLOSER, SPACE, UNWRITTEN, ORDINARY, REASONING, ABSENT = (1 << bit for bit in range(8))
"""Flags of an id: begins a header; ends a turn; ends a message; is white space; is a control token that the template
never writes; is ordinary text; begins reasoning; is not in the tokenizer."""

RARE = HEADER | STOP | CLOSER | UNWRITTEN | REASONING | ABSENT
"""Flags that few tokens of a document have."""


@dataclass(frozen=True)
class Tables:
    """`flags` uint8 [V + 1]: the last is for all ids outside the vocabulary; `grammar`.

    `first_bytes`: uint8 [V + 1], the first byte of each token, 0 for tokens without bytes. `beginnings`: what the
    template always writes first. `supplied`: whether a prompt supplies all that some variables let it supply.
    """

    grammar: Grammar
    flags: npt.NDArray[np.uint8]
    first_bytes: npt.NDArray[np.uint8]
    beginnings: Beginnings = field(default_factory=Beginnings)
    supplied: bool = False

    def of(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """The flags of tokens, uint8 [T]."""
        # As unsigned numbers, ids below 0 are above the vocabulary too.
        return np.take(self.flags, tokens.view(np.uint32), mode="clip")

    def first_bytes_of(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """The first byte of each token, uint8 [T]."""
        return np.take(self.first_bytes, tokens.view(np.uint32), mode="clip")


def make_tables(grammar: Grammar, tokenizer: JsonTokenizer, padding: frozenset[int]) -> Tables:
    """Makes the tables. `padding`: ids that may follow a document's last turn: EOS, padding, BOS."""
    size = tokenizer.vocab_size
    flags = np.full(size + 1, ABSENT, np.uint8)
    first_bytes = np.zeros(size + 1, np.uint8)
    special = {tokenizer.id_of(text) for text in tokenizer.special_texts()} | grammar.stops
    for token, data in enumerate(tokenizer.pieces(range(size))):
        first_bytes[token] = data[0] if data else 0
        if token in special:
            flags[token] = 0 if token in grammar.written or token in padding else UNWRITTEN
        elif data:
            flags[token] = ORDINARY if data.strip() else SPACE
    for ids, flag in (
        (grammar.stops, STOP),
        (grammar.closers, CLOSER),
        ({header.core[0] for header in grammar.headers}, HEADER),
        ({grammar.reasoning[0]} if grammar.reasoning else set(), REASONING),
    ):
        for token in ids:
            flags[token] |= flag
    return Tables(grammar, flags, first_bytes)
