"""What a template always writes first: in a document, and in an answer by where it is.

In: documents that are right, their frames. Out: `Beginnings`; and where other documents begin otherwise.
"""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from spanloom.law.documents import Documents, Ints
from spanloom.law.frames import Frames
from spanloom.law.grammar import ASSISTANT, BETWEEN, HISTORY, LAST, USER, Beginnings, Ids, common_prefix

_NOWHERE = 255
_SEEN = 3
"""In so many answers at least, a beginning is seen before it counts as what the template always writes."""

_LONGEST = 16


def find_beginnings(documents: Documents, frames: Frames, added: Collection[int]) -> Beginnings:
    """What all of these documents have in common. `added`: ids of added tokens."""
    starts, ends = documents.ends - documents.lengths, documents.ends
    first = frames.headed[np.searchsorted(frames.starts, starts)]  # behind the header of the first frame, if it has one
    tokens = documents.tokens
    heads = [
        tuple(tokens[start : max(behind, start + _leading(tokens[start:end], added))].tolist())
        for start, behind, end in zip(starts.tolist(), first.tolist(), ends.tolist(), strict=True)
    ]
    where = _places(documents, frames)
    answers = {}
    for place in (HISTORY, BETWEEN, LAST):
        own = np.flatnonzero(where == place).tolist()
        bodies = [
            tuple(tokens[frames.headed[number] : min(frames.ends[number], frames.headed[number] + _LONGEST)].tolist())
            for number in own
        ]
        if len(bodies) >= _SEEN and (common := _through_added(common_prefix(bodies), added)):
            answers[place] = common
    return Beginnings(
        document=_through_added(common_prefix(heads), added) if len(heads) >= _SEEN else (), answers=answers
    )


def other_beginnings(documents: Documents, frames: Frames, known: Beginnings) -> tuple[Ints, Ints]:
    """The first tokens of documents that begin otherwise, and those of answers."""
    starts = documents.ends - documents.lengths
    wrong = starts[~_begin(documents.tokens, starts, documents.ends, known.document)]
    if not known.answers:
        return wrong, wrong[:0]
    where = _places(documents, frames)
    answers = [wrong[:0]]
    for place, ids in known.answers.items():
        own = np.flatnonzero(where == place)
        begins = frames.headed[own]
        other = ~_begin(documents.tokens, begins, frames.ends[own], ids)
        # A document that is cut in these ids says nothing.
        other &= (begins + len(ids) <= frames.ends[own]) | (frames.ends[own] < documents.ends[frames.document[own]])
        answers.append(np.minimum(begins[other], frames.ends[own][other] - 1))
    return wrong, np.sort(np.concatenate(answers))


def _places(documents: Documents, frames: Frames) -> npt.NDArray[np.uint8]:
    """Where each frame's answer is, uint8 [K]."""
    numbers = np.arange(frames.starts.size)

    def latest(which: npt.NDArray[np.bool_]) -> Ints:
        last = np.full(len(documents), -1)
        np.maximum.at(last, frames.document[which], numbers[which])
        found: Ints = last[frames.document]
        return found

    is_answer = frames.roles == ASSISTANT
    where = np.full(frames.starts.size, _NOWHERE, np.uint8)
    where[is_answer & (latest(is_answer) > numbers)] = BETWEEN
    where[is_answer & (latest(np.ones_like(is_answer)) == numbers)] = LAST
    where[is_answer & (latest(frames.roles == USER) > numbers)] = HISTORY
    return where


def _begin(tokens: npt.NDArray[np.int32], begins: Ints, ends: Ints, ids: Ids) -> npt.NDArray[np.bool_]:
    """Whether these ids are at these places, bool [K]."""
    fits = begins + len(ids) <= ends
    for offset, token in enumerate(ids):
        fits[fits] = tokens[begins[fits] + offset] == token
    return fits


def _through_added(ids: Sequence[int], added: Collection[int]) -> Ids:
    """The ids through the last added one."""
    last = max((place for place, token in enumerate(ids) if token in added), default=-1)
    return tuple(ids[: last + 1])


def _leading(tokens: npt.NDArray[np.int32], added: Collection[int]) -> int:
    """How many added tokens begin a document."""
    return next((place for place, token in enumerate(tokens.tolist()) if token not in added), tokens.size)
