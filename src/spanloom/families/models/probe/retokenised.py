"""Finds documents with the right text but other ids than the tokenizer's.

In: documents, their frames, a model. Out: for some of them, the first id that differs. A document is correct if its ids
are those of its whole text, or those of prompts and completions encoded separately, as servers do.
"""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from spanloom.families.models.model import Model
from spanloom.law.documents import Documents
from spanloom.law.frames import Frames


def first_other_id(model: Model, tokens: npt.NDArray[np.int32], cuts: Iterable[int]) -> int | None:
    """The first id of a document that differs from those of its text; None if all are equal.

    `cuts`: where completions begin and end. A document whose tokens do not decode to text is not judged: None.
    """
    whole = ids_of_text(model, tokens)
    if whole is None or np.array_equal(whole, tokens):
        return None
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < tokens.size}), tokens.size]
    for begin, end in pairwise(edges):
        piece = ids_of_text(model, tokens[begin:end])
        if piece is None:
            return None
        if not np.array_equal(piece, tokens[begin:end]):
            same = min(piece.size, end - begin)
            other = np.flatnonzero(piece[:same] != tokens[begin : begin + same])
            return begin + (int(other[0]) if other.size else max(same - 1, 0))
    return None


def retokenised(model: Model, documents: Documents, frames: Frames, most: int) -> list[int]:
    """For the first `most` documents: the first token of the batch that differs from the ids of their text."""
    places = []
    ends = documents.ends
    for number in range(min(most, len(documents))):
        start, end = int(ends[number] - documents.lengths[number]), int(ends[number])
        runs = slice(*np.searchsorted(frames.begins, [start, end]))
        cuts = np.concatenate([frames.begins[runs], frames.stops[runs]]) - start
        other = first_other_id(model, documents.tokens[start:end], cuts.tolist())
        if other is not None:
            places.append(start + other)
    return places


def ids_of_text(model: Model, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.int32] | None:
    """The ids of the decoded text; None if tokens do not decode to text."""
    pieces = model.tokenizer.pieces(tokens.tolist())
    if not all(pieces):
        return None
    try:
        text = b"".join(pieces).decode()
    except UnicodeDecodeError:
        return None
    return model.encoder.ids(text)
