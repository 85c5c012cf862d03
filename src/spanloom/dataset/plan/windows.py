"""Cuts a document longer than a sequence into windows that each begin with the question. Arrays in, arrays out.

In: the loss mask of a document as on disk (position p: whether the token at p + 1 is trained), the length of a
sequence. Out: windows, each at most that long. A window is

    [0, head) + [question_begin, question_end) + [begin, end)        positions of the document
     pinned: read, not trained                   body: trained where the loss mask is 1

so that the first two pieces show the model the question. Bodies do not overlap, and contain every trained position, so
each label is trained exactly once. A question is a run of untrained tokens before a run of trained tokens:

    tokens      s u q q S a b c d e f R .        length 8, at most 4 positions pinned
    loss mask   0 0 0 1 1 1 1 1 1 1 1 0 0        the label of the last q is S
    windows     [0, 8)                           the document's beginning, unchanged
                [0, 4) + [8, 11)                 s u q q | d e f   learns e, f, R

If a question is too long to be pinned, its beginning and its end are pinned. In documents with several turns, a window
that begins in a later answer gets the document's first question and that answer's own question.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Windows = npt.NDArray[np.int32]
"""int32 [W, 5]: head, question_begin, question_end, begin, end."""

Mask = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class CutDocument:
    """The windows of one document. `shortened`: trained labels whose question is pinned without its middle, counted."""

    windows: Windows
    shortened: int


def cut_document(lossmask: Mask, length: int, *, pinned: int) -> CutDocument:
    """The windows of one document.

    Args: lossmask uint8 [L]; length of a sequence; pinned, the most positions of a question in each window, less than
    `length`. A document without a trained label gets one window, its first `length` positions.
    """
    runs = _trained_runs(lossmask)
    if not runs:
        return CutDocument(windows=np.array([[0, 0, 0, 0, length]], dtype=np.int32), shortened=0)
    windows: list[tuple[int, int, int, int, int]] = []
    shortened = covered = 0
    if runs[0][0] < length:
        windows.append((0, 0, 0, 0, _last_trained(runs, length)))
        covered = length
    for number, (first, last) in enumerate(runs):
        while covered < last:
            begin = max(first, covered)
            # The token at `first` still belongs to the question. A body that begins there contains it.
            whole = first + 1 if begin > first else first
            earlier = 0 if number == 0 else runs[number - 1][1] + 1
            head, question = _pin(runs[0][0] + 1, range(earlier, whole), pinned, first_answer=number == 0)
            covered = begin + length - head - len(question)
            end = _last_trained(runs, covered)
            windows.append((head, question.start, question.stop, begin, end))
            if (head + len(question) if number == 0 else len(question)) < whole - earlier:
                shortened += min(last, end) - begin
    return CutDocument(windows=np.array(windows, dtype=np.int32), shortened=shortened)


def _pin(prompt: int, question: range, most: int, *, first_answer: bool) -> tuple[int, range]:
    """The number of pinned positions at the document's beginning, and the pinned range of the question.

    `prompt`: positions of the document's first question, which for the first answer is `question` itself.
    """
    if first_answer:
        if len(question) <= most:
            return len(question), range(0)
        return most // 2, question[len(question) - (most - most // 2) :]
    tail = min(len(question), most - min(prompt, most // 2))
    return min(prompt, most - tail), question[len(question) - tail :]


def _trained_runs(lossmask: Mask) -> list[tuple[int, int]]:
    """The runs of trained positions: `[(first, last + 1), …]`."""
    edges: list[int] = (np.flatnonzero(lossmask[1:] != lossmask[:-1]) + 1).tolist()
    if lossmask[0]:
        edges.insert(0, 0)
    if lossmask[-1]:
        edges.append(lossmask.size)
    return list(zip(edges[::2], edges[1::2], strict=True))


def _last_trained(runs: list[tuple[int, int]], end: int) -> int:
    """The end of a body: after the last trained position before `end`. Later positions would be read without use."""
    _, last = runs[bisect_left(runs, (end, 0)) - 1]
    return min(last, end)


def cut_off_labels(lossmask: Mask, length: int) -> tuple[int, int]:
    """`(trained labels, trained labels without any of their question)` if concatenated documents are cut every `length`
    tokens.

    lossmask uint8 [1 + K · length]: K sequences, and the position before the first. A label has lost its question if
    its sequence begins inside its run of trained labels. Documents end untrained, so a run never continues in the next
    document.
    """
    rows = lossmask[1:].reshape(-1, length)
    cut = (lossmask[:-1:length][: rows.shape[0]] > 0) & (rows[:, 0] > 0)
    untrained = rows[cut] == 0
    leading = np.where(untrained.any(axis=1), untrained.argmax(axis=1), length)
    return int(np.count_nonzero(rows)), int(leading.sum())
