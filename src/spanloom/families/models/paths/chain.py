"""The runs of a conversation that share a document, found by path.

In: runs with their texts and new tokens. Out: the document. What runs have in common is stored once.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from spanloom.families.models.paths.runs import PathRun
from spanloom.families.models.prove.documents import Document
from spanloom.families.models.prove.run import ProvenRun
from spanloom.supervision import Tokens

_COMPARED_FIRST = 256
"""Characters."""


class Chain:
    """The runs of a document. `whole`: F of the last one, with whose text each earlier one's begins; `stop`, `end`: the
    characters and the tokens through the token that ends its turn; `tail`: the tokens behind it."""

    def __init__(self) -> None:
        self._texts: list[tuple[int, str]] = []  # the parts of `whole`, each with its place
        self._encoded: bytes | None = None  # `whole`, in place of its parts
        self._last = ""
        self.stop = self.end = 0
        self.tail = np.empty(0, np.int32)
        self.runs: list[Run] = []
        self._pieces: list[Tokens] = []
        self._whole_tokens: Tokens | None = None

    def go_on(self, run: "Run", known: int, new: Tokens) -> None:
        """Adds a run, which begins with the document. `known`: how many tokens of the run before stay; `new`: those
        behind them."""
        if not known:
            self._pieces.clear()
        self._pieces.append(new[: run.end - known])
        self._whole_tokens = None
        self._append(run.found.base, run.found.text)
        self.stop, self.end, self.tail = run.found.stop, run.end, run.tail_tokens
        end = self.stop - run.found.base
        self._last = run.found.text[max(0, end - _COMPARED_FIRST) : end]
        self.runs.append(run)

    def _append(self, base: int, text: str) -> None:
        """Replaces the text from place `base` on."""
        if self._encoded is not None:
            self._texts, self._encoded = [(0, self._encoded.decode())], None
        while self._texts and self._texts[-1][0] >= base:
            self._texts.pop()
        if self._texts:
            place, before = self._texts[-1]
            self._texts[-1] = place, before[: base - place]
        self._texts.append((base, text))

    @property
    def whole(self) -> str:
        return "".join(text for _, text in self._texts) if self._encoded is None else self._encoded.decode()

    def compact(self) -> bytes:
        """The text in UTF-8, and kept so: few documents get another run."""
        if self._encoded is None:
            self._encoded = self.whole.encode()
            self._texts.clear()
        return self._encoded

    @property
    def tokens(self) -> Tokens:
        """Those through the token that ends the last turn."""
        return self.whole_tokens()[: self.end]

    def whole_tokens(self) -> Tokens:
        """All of them. They are stored once: the runs of a document have parts of this array."""
        if self._whole_tokens is None:
            self._whole_tokens = np.concatenate([*self._pieces, self.tail])
            self._pieces = [self._whole_tokens[: self.end]]
        return self._whole_tokens

    def begins(self, found: PathRun) -> bool:
        """Whether the text of a run begins with that of the document through its last turn."""
        last = self.runs[-1].found
        if self._texts and found.previous == last.run and found.variables is last.variables:
            place, text = self._texts[-1]
            if place <= found.base <= min(found.shared, self.stop):  # only what is behind `base` is to be compared
                return text[found.base - place : self.stop - place] == found.text[: self.stop - found.base]
        # The end is compared first: a template that rewrites history moves it, and comparing all of each document with
        # each run would take the square of a conversation's length.
        whole = found.widen()
        return whole.endswith(self._last, 0, self.stop) and whole.startswith(self.whole[: self.stop])


@dataclass
class Run:
    """A run in its document. `found`: without its text; `first`, `end`: its trained tokens, with `spans`;
    `tail_tokens`: of what F has behind them."""

    chain: Chain
    found: PathRun
    first: int
    end: int
    spans: Any
    tail_tokens: Tokens
    thought: bool = False
    generation: bool | None = None

    @property
    def prompt(self) -> str:
        """P."""
        return self.chain.whole[: self.found.prompt]

    @property
    def written(self) -> str:
        """F, as the template writes it."""
        return (self.chain.whole[: self.found.stop] + self.found.tail).removesuffix(self.found.marker)

    def proven(self, whole: str) -> ProvenRun:
        """As the full proof gives it. `whole`: the text of the document, or "" where the document keeps it."""
        found = self.found
        return ProvenRun(
            run=found.run,
            whole=whole,
            stop=found.stop,
            prompt=found.prompt,
            tokens=self.chain.tokens[: self.end],
            first=self.first,
            end=self.end,
            spans=self.spans,
            tail=found.tail,
            tail_tokens=self.tail_tokens,
            variables=found.variables,
            boundary="joined",
            turn_end=found.turn_end,
            trimmed=found.trimmed,
            forgotten=found.forgotten,
            generation=self.generation,
            thought=self.thought,
        )


def document_of(chain: Chain) -> Document:
    """The document of the runs of a chain."""
    tokens = chain.whole_tokens()
    mask, spans = np.zeros(len(tokens), np.uint8), np.zeros(len(tokens), np.uint8)
    for run in chain.runs:
        mask[run.first : run.end] = 1
        spans[run.first : run.end] = run.spans
    runs = tuple(run.proven("") for run in chain.runs)
    return Document(encoded=chain.compact(), tokens=tokens, mask=mask, spans=spans, runs=runs)
