"""The most probable next tokens of some positions, as a teacher has them, and what must hold of them.

In: what a teacher answered. Out: `Signals`, or TeacherError. Position j belongs to label j: the label is a token of the
document, and the position is the one before it, from which the teacher predicts it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.errors import SpanloomError
from spanloom.teacher.coding import LOWEST, Floats, Ids

MOST_ABOVE_ONE = 1e-4
"""By how much the probabilities of one position may exceed 1."""

EQUAL = 1e-4
"""Two log-probabilities of one token at one position differ by less."""

INFINITE = -9_000
"""Servers write -9999 for minus infinity."""

NEAR_ZERO = 1e-6
"""A log-probability may be so much above 0: the rounding of float32."""


SHIFTS = (-1, 0, 1)
ENOUGH = 200
"""Labels from which on their agreement with shifted entries is looked at."""

CHANCE = 5
"""Standard deviations by which agreements of two shifts must differ to say anything."""


class TeacherError(SpanloomError):
    """Signals that are not those of a teacher, or not of this dataset."""


@dataclass(frozen=True, kw_only=True)
class Signals:
    """P positions of a document.

    ids       int32 [P, k]    the most probable next tokens, the first the most probable
    logprobs  float32 [P, k]  their log-probabilities
    own       float32 [P]     that of the label; NaN in signals that were imported without
    rest      float32 [P]     log of the probability that all other tokens have together
    """

    ids: Ids
    logprobs: Floats
    own: Floats
    rest: Floats

    @classmethod
    def none(cls, k: int) -> "Signals":
        """Of no position."""
        return cls(
            ids=np.empty((0, k), np.int32),
            logprobs=np.empty((0, k), np.float32),
            own=np.empty(0, np.float32),
            rest=np.empty(0, np.float32),
        )

    @classmethod
    def joined(cls, parts: Sequence["Signals"], k: int) -> "Signals":
        """The positions of all parts, in order."""
        given = [cls.none(k), *parts]
        return cls(**{name: np.concatenate([getattr(each, name) for each in given]) for name in cls.__annotations__})

    def __len__(self) -> int:
        return int(self.own.size)


class Agreement:
    """How often the first choice is the label, and those beside it: entries that are shifted agree with another.

    `labels`: how many were compared; `counts`: by shift, how many agree, of how many.
    """

    def __init__(self) -> None:
        self.counts = {shift: [0, 0] for shift in SHIFTS}

    def add(self, first: Ids, labels: Ids) -> None:
        """One document: the most probable token of each entry, and the labels, int32 [P] each."""
        for shift, counted in self.counts.items():
            own = first[max(-shift, 0) : first.size - max(shift, 0)]
            beside = labels[max(shift, 0) : labels.size + min(shift, 0)]
            counted[0] += int(np.count_nonzero(own == beside))
            counted[1] += own.size

    @property
    def labels(self) -> int:
        return self.counts[0][1]

    @property
    def shares(self) -> dict[int, float]:
        """Of the shifts with `ENOUGH` labels."""
        return {shift: found / count for shift, (found, count) in self.counts.items() if count >= ENOUGH}

    @property
    def enough(self) -> bool:
        return len(self.shares) == len(SHIFTS)

    @property
    def best(self) -> int:
        """The shift with the largest share; 0 where it is among several."""
        shares = self.shares
        return max(shares, key=lambda shift: (shares[shift], shift == 0))

    @property
    def sure(self) -> bool:
        """Whether the largest share is larger than those beside it, not by chance."""
        shares = self.shares
        by_chance = CHANCE * (max(shares.values()) / self.labels) ** 0.5
        beside = max(share for shift, share in shares.items() if shift != self.best) if self.best == 0 else shares[0]
        return bool(shares[self.best] - beside > by_chance)

    @property
    def in_words(self) -> str:
        if not self.enough:
            return f"{self.labels} labels are too few to tell"
        return ", ".join(f"{share:.1%} at {shift:+d}" for shift, share in self.shares.items())


def what_is_wrong(
    signals: Signals, labels: Ids, k: int, vocabulary: int, *, coded: float = 0, sums: float = 0, has_own: bool = True
) -> tuple[int, str] | None:
    """The first position whose signals cannot be a teacher's, and why; None if there is none. `labels` int32 [P];
    `vocabulary`: size of the tokenizer; `coded`: by how much values were changed when they were stored; `sums`: by how
    much their sum was besides; `has_own`: whether the label's own value is there."""
    ids, logprobs, own, rest = signals.ids, signals.logprobs, signals.own, signals.rest
    count = labels.size
    if ids.shape != (count, k) or logprobs.shape != (count, k) or own.shape != (count,) or rest.shape != (count,):
        return 0, f"{count} positions of {k} tokens are wanted, the answer has {' × '.join(map(str, ids.shape))}"
    if not count:
        return None
    probabilities = np.exp(logprobs.astype(np.float64)).sum(axis=1)
    ordered = np.sort(ids, axis=1)
    most = 1 + MOST_ABOVE_ONE + coded + sums
    held = ids == labels[:, None]
    ranked = held.any(axis=1)
    of_label = np.where(held, logprobs, 0).sum(axis=1)
    if not has_own:
        own = np.where(ranked, of_label, logprobs[:, -1])
    rules: list[tuple[Any, str]] = [
        (~np.isfinite(logprobs).all(axis=1) | ~np.isfinite(own) | np.isnan(rest), "a value is not a number"),
        ((logprobs < INFINITE).any(axis=1) | (own < INFINITE), "a value stands for minus infinity"),
        ((logprobs > NEAR_ZERO).any(axis=1) | (own > NEAR_ZERO) | (rest > NEAR_ZERO), "a log-probability is above 0"),
        (probabilities > most, "the probabilities exceed 1: these are no log-probabilities"),
        (probabilities + np.exp(rest.astype(np.float64)) > most + 9e-4, "the probabilities and the rest exceed 1"),
        ((np.diff(logprobs, axis=1) > NEAR_ZERO).any(axis=1), "the tokens are not in the order of their probability"),
        ((np.diff(ordered, axis=1) == 0).any(axis=1), "a token is there twice"),
        ((ids < 0).any(axis=1) | (ids >= vocabulary).any(axis=1), f"an id is not below {vocabulary:,}"),
        (ranked & (np.abs(of_label - own) > EQUAL + coded), "the label has two log-probabilities"),
        (~ranked & (own > logprobs[:, -1] + EQUAL + coded), "the label is more probable than a token that is ranked"),
    ]
    for wrong, why in rules:
        if wrong.any():
            return int(wrong.argmax()), why
    return None


def rest_of(logprobs: Floats) -> Floats:
    """Log of what tokens with these log-probabilities leave, for teachers that do not say it: float32 [P]. Where they
    leave nothing, by rounding, it is the lowest value. `logprobs` float32 [P, k]."""
    left = -np.expm1(_log_sum(logprobs.astype(np.float64)))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(left > 0, np.log(left), LOWEST).clip(LOWEST, 0).astype(np.float32)


def _log_sum(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    top = values.max(axis=1, keepdims=True)
    summed: npt.NDArray[np.float64] = np.log(np.exp(values - top).sum(axis=1)) + top[:, 0]
    return summed
