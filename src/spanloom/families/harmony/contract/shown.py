"""Cuts the tokens of a Harmony document into its messages, for display."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from spanloom.dataset.document import ShownMessage, ShownToken
from spanloom.families.harmony import tokenizer


def messages_of(tokens: Sequence[ShownToken]) -> Iterator[ShownMessage]:
    """The messages of a document, with the role and channel in their headers."""
    cuts = [at for at, token in enumerate(tokens) if token.id == tokenizer.START]
    closing = [len(tokens) - 1] if tokens and tokens[-1].id == tokenizer.EOD else []
    edges = sorted({0, *cuts, *closing, len(tokens)})
    for first, last in pairwise(edges):
        role, _, channel = "".join(
            "\0" if token.id == tokenizer.CHANNEL else "" if token.special else token.text
            for token in tokens[first:last]
            if token.header
        ).partition("\0")
        # The last token represents its message: only the first token of a document can differ from its message.
        yield ShownMessage.of(tokens[last - 1], first, last, role=role.strip(), channel=channel.strip())
