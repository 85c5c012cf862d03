"""What every source of scores is: a model in this process, a server.

In: documents. Out: their `Signals`, in order, or why a document has none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spanloom.teacher.positions import ScoredDocument
from spanloom.teacher.signals import Signals

Answered = Callable[[int], None]
"""Is called with the number of labels whose scores have come."""

TOO_LONG = "longer_than_context"
"""The reason of documents that have more tokens than the teacher takes."""


@dataclass(frozen=True)
class Without:
    """A document has no signals. `reason`: a class, counted in the manifest."""

    reason: str
    detail: str


class StoredSignals(Protocol):
    """Signals that others have made of documents of a dataset: they are not scored again.

    identity           what their teacher is
    sha256             of what they are read from
    k, spans           as `Scoring`
    own                whether the labels' own values are there; else they are NaN
    padded             of how many ids above the tokenizer's they say that they were left out
    sums               by how much sums of probabilities may exceed 1, beside the coding
    missing            the reason of documents that they have not
    """

    identity: dict[str, Any]
    sha256: str
    k: int
    spans: list[str] | None
    own: bool
    padded: int
    sums: float
    missing: str

    def has(self, document: ScoredDocument) -> bool: ...

    def of(self, documents: Sequence[ScoredDocument]) -> dict[int, Signals]:
        """Those of the documents that have some, by the number of the document."""
        ...

    def check_teacher(self, teacher: "Teacher", document: ScoredDocument) -> None:
        """Raises TeacherError unless the teacher is theirs, by a document that has stored signals."""
        ...


def unnoticed(_labels: int) -> None:
    """For callers that show no progress."""


class Teacher(Protocol):
    """A source of scores.

    identity   what the teacher is, for the manifest and for resuming: JSON
    context    the most tokens of a document
    padded     how many ids above the tokenizer's were left out so far
    tolerance  by how much two scores of one document may differ
    at_once    tokens of the documents that `scores` is given: a run that is killed loses so many
    """

    identity: dict[str, Any]
    context: int
    padded: int
    tolerance: float
    at_once: int

    def scores(self, documents: Sequence[ScoredDocument], k: int, answered: Answered = unnoticed) -> list[Signals]:
        """The signals of documents with at most `context` tokens and at least one position, in their order. What is
        scored together depends on these documents alone. `answered`: called in this thread. Raises TeacherError."""
        ...
