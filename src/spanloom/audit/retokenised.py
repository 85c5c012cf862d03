"""Documents whose text is right and whose ids are not those of the tokenizer.

In: documents, their frames, a model. Out: for some of them, where the ids begin to differ. A document is right where
its ids are those of its whole text, or those of prompts and completions encoded apart, as servers do.
"""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from spanloom.audit.documents import Documents
from spanloom.audit.frames.reading import Frames
from spanloom.families.models.model import Model


def first_other_id(model: Model, tokens: npt.NDArray[np.int32], cuts: Iterable[int]) -> int | None:
    """Where the ids of a document begin to differ from those of its text; None where they do not.

    `cuts`: where completions begin and end. A document whose tokens spell no text is not judged: None.
    """
    whole = _ids(model, tokens)
    if whole is None or np.array_equal(whole, tokens):
        return None
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < tokens.size}), tokens.size]
    for begin, end in pairwise(edges):
        piece = _ids(model, tokens[begin:end])
        if piece is None:
            return None
        if not np.array_equal(piece, tokens[begin:end]):
            same = min(piece.size, end - begin)
            other = np.flatnonzero(piece[:same] != tokens[begin : begin + same])
            return begin + (int(other[0]) if other.size else max(same - 1, 0))
    return None


def retokenised(model: Model, documents: Documents, frames: Frames, most: int) -> list[int]:
    """The tokens of the batch where documents begin to differ from their text's ids, of the first `most` documents."""
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


def _ids(model: Model, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.int32] | None:
    """The ids of the text that tokens spell; None where they spell none."""
    pieces = [model.tokenizer.token_bytes(token) for token in tokens.tolist()]
    if not all(pieces):
        return None
    try:
        text = b"".join(pieces).decode()
    except UnicodeDecodeError:
        return None
    return model.encoder.ids(text)
