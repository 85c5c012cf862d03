"""Signals without a model: distributions that are drawn from the tokens before each label, for small datasets.

In: the root of a dataset. Out: a folder of signals; and, by document and position, what the entry must be.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.teacher.positions import ScoredDocument
from spanloom.teacher.score import Scoring, score
from spanloom.teacher.signals import Signals
from spanloom.teacher.sources.teacher import Answered, unnoticed


def distribution(tokens: npt.NDArray[Any], vocabulary: int) -> npt.NDArray[np.float64]:
    """Log-probabilities of the token that follows these, float64 [V]."""
    values = np.random.default_rng([len(tokens), *tokens.tolist()[-3:]]).normal(0, 2, vocabulary)
    logprobs: npt.NDArray[np.float64] = values - np.log(np.exp(values).sum())
    return logprobs


class DrawnTeacher:
    padded, tolerance, at_once = 0, 1e-6, 1 << 19

    def __init__(self, vocabulary: int, context: int = 10**6) -> None:
        self.vocabulary, self.context = vocabulary, context
        self.identity = {"source": "drawn"}

    def scores(self, documents: Sequence[ScoredDocument], k: int, answered: Answered = unnoticed) -> list[Signals]:  # noqa: ARG002
        return [self._score(document, k) for document in documents]

    def _score(self, document: ScoredDocument, k: int) -> Signals:
        rows = [distribution(document.tokens[: place + 1], self.vocabulary) for place in document.positions]
        whole = np.array(rows).reshape(-1, self.vocabulary)
        ids = np.argsort(-whole, axis=1)[:, :k]
        top = np.take_along_axis(whole, ids, 1)
        return Signals(
            ids=ids.astype(np.int32),
            logprobs=top.astype(np.float32),
            own=np.take_along_axis(whole, document.labels[:, None], 1)[:, 0].astype(np.float32),
            rest=np.log1p(-np.exp(top).sum(1)).astype(np.float32),
        )


def write_signals(
    root: Path, out: Path, vocabulary: int, *, k: int = 4, spans: tuple[str, ...] | None = None, context: int = 10**6
) -> Path:
    score(root, out, DrawnTeacher(vocabulary, context), Scoring(k=k, spans=spans))
    return out
