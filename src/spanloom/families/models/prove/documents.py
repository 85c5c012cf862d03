"""Runs → as few documents as possible. A run joins a document if its P begins with the text of the document so far.

In: the proven runs of a conversation, in order, with the P of each. Out: documents with tokens, mask and spans.

If its P begins with the texts of several documents, the run joins the longest. These texts are prefixes of one another,
so no other choice needs fewer documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spanloom.families.models.prove.run import ProvenRun
from spanloom.supervision import Flags, Tokens


@dataclass(frozen=True, kw_only=True)
class Document:
    """One document of a conversation, token-aligned.

    encoded its text in UTF-8: a text with one emoji takes four bytes a character
    tokens  int32 [T]
    mask    uint8 [T]  1 = the model samples it
    spans   uint8 [T]  0 = context, 1 = analysis, 2 = final, 3 = commentary
    runs    the runs that are trained in it, in order
    """

    encoded: bytes
    tokens: Tokens
    mask: Flags
    spans: Flags
    runs: tuple[ProvenRun, ...]

    @property
    def text(self) -> str:
        return self.encoded.decode()


def documents_of_runs(runs: Sequence[ProvenRun]) -> list[Document]:
    """The documents of a conversation, in the order of their first runs."""
    chains: list[list[ProvenRun]] = []
    for run in runs:
        fitting = [chain for chain in chains if _begins(chain[-1], run)]
        if fitting:
            max(fitting, key=lambda chain: len(chain[-1].tokens)).append(run)
        else:
            chains.append([run])
    return [_document(chain) for chain in chains]


def _begins(earlier: ProvenRun, run: ProvenRun) -> bool:
    """Whether the text of a run begins the P of another one, in characters and in tokens."""
    length = len(earlier.tokens)
    return (
        len(earlier.text) <= run.prompt
        and length <= run.first
        and run.text.startswith(earlier.text)
        and np.array_equal(run.tokens[:length], earlier.tokens)
    )


def _document(chain: Sequence[ProvenRun]) -> Document:
    last = chain[-1]
    tokens = np.concatenate([last.tokens, last.tail_tokens]).astype(np.int32)
    mask, spans = np.zeros(len(tokens), np.uint8), np.zeros(len(tokens), np.uint8)
    for run in chain:
        mask[run.first : run.end] = 1
        spans[run.first : run.end] = run.spans
    encoded = (last.text + last.tail).encode()
    return Document(encoded=encoded, tokens=tokens, mask=mask, spans=spans, runs=tuple(chain))
