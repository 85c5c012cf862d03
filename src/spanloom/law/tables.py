"""A grammar as lookup tables by token id.

In: a grammar, the tokenizer. Out: `Tables`: a byte of flags for each id, the headers as arrays.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.law.grammar import Grammar
from spanloom.tokenizers.encoding import JsonTokenizer

HEADER, STOP, CLOSER, SPACE, UNWRITTEN, ORDINARY, REASONING, ABSENT = (1 << bit for bit in range(8))
"""Flags of an id: begins a header; ends a turn; ends a message; is white space; is a control token that the template
never writes; is ordinary text; begins reasoning; is not in the tokenizer."""


@dataclass(frozen=True)
class Tables:
    """`flags` uint8 [V + 1]: the last is for all ids outside the vocabulary; `grammar`.

    `first_bytes`: uint8 [V + 1], the first byte of each token, 0 for tokens without bytes.
    """

    grammar: Grammar
    flags: npt.NDArray[np.uint8]
    first_bytes: npt.NDArray[np.uint8]

    def of(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """The flags of tokens, uint8 [T]."""
        return self.flags[self._within_vocabulary(tokens)]

    def first_bytes_of(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
        """The first byte of each token, uint8 [T]."""
        return self.first_bytes[self._within_vocabulary(tokens)]

    def _within_vocabulary(self, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """The tokens, with V in place of ids outside the vocabulary."""
        last = self.flags.size - 1
        if tokens.size and (int(tokens.max()) > last or int(tokens.min()) < 0):
            return np.where((tokens < 0) | (tokens > last), np.int32(last), tokens)
        return tokens


def make_tables(grammar: Grammar, tokenizer: JsonTokenizer, padding: frozenset[int]) -> Tables:
    """Makes the tables. `padding`: ids that may follow a document's last turn: EOS, padding, BOS."""
    size = tokenizer.vocab_size
    flags = np.full(size + 1, ABSENT, np.uint8)
    first_bytes = np.zeros(size + 1, np.uint8)
    special = {tokenizer.id_of(text) for text in tokenizer.special_texts()} | grammar.stops
    for token in range(size):
        data = tokenizer.token_bytes(token)
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
