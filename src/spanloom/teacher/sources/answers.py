"""Answers of servers and of vLLM → signals: for each token of a prompt, the most probable ones, and the token itself.

In: the ids that were sent, those that came back, the entries of each position. Out: `Signals`. Entry i of an answer is
about token i, given those before it. It has k tokens, and one more where the token itself is not among these.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.teacher.positions import ScoredDocument
from spanloom.teacher.signals import Signals, TeacherError, rest_of


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Of one prompt of L tokens. `echoed`: its ids, as they came back; `counts`: entries of each position, [L], 0 for
    the first; `ids`, `logprobs`: of all entries, end to end."""

    echoed: Sequence[int]
    counts: npt.ArrayLike
    ids: npt.ArrayLike
    logprobs: npt.ArrayLike


def prompt_of(document: ScoredDocument) -> list[int]:
    """The tokens whose entries are wanted: through the last label."""
    return [*document.tokens.tolist(), int(document.labels[-1])]


def signals_of(document: ScoredDocument, answer: Answer, k: int) -> Signals:
    """The entries of the scored labels. Raises TeacherError where the answer is not one to this prompt and k."""

    def refused(why: str) -> TeacherError:
        return TeacherError(f"the teacher's answer is wrong: {why}", where=f"document {document.sequence}")

    sent = prompt_of(document)
    if list(answer.echoed) != sent:
        raise refused("it is about other tokens than those that were sent")
    counts = np.asarray(answer.counts, np.int64)
    if counts.size != len(sent) or not np.isin(counts[1:], (k, k + 1)).all():
        raise refused(f"it has not {k} or {k + 1} entries for each of {len(sent)} tokens")
    ends = np.cumsum(counts)
    places = document.positions + 1  # the label of a position is the token behind it
    at = (ends - counts)[places][:, None] + np.arange(k + 1)
    held = np.arange(k + 1) < counts[places][:, None]
    at = np.where(held, at, 0)
    ids = np.where(held, np.asarray(answer.ids, np.int64)[at], -1)
    logprobs = np.where(held, np.asarray(answer.logprobs, np.float64)[at], -np.inf)
    own = ids == document.labels[:, None]
    if not (own.sum(axis=1) == 1).all():
        raise refused("a label is not among its own entries, or twice")
    ranked = np.argsort(-logprobs, axis=1, kind="stable")[:, :k]
    top = np.take_along_axis(logprobs, ranked, 1).astype(np.float32)
    return Signals(
        ids=np.take_along_axis(ids, ranked, 1).astype(np.int32),
        logprobs=top,
        own=logprobs[own].astype(np.float32),
        rest=rest_of(top),
    )
