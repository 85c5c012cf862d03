"""Documents of findings for display: tokens coloured by whether they are trained and should be.

In: a document of a batch, the tokens that the model samples, the place of a finding. Out: `ShownDocument`.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np

from spanloom.auditing.auditor import Auditor
from spanloom.dataset.document import ShownDocument, ShownMessage
from spanloom.dataset.inspect import shown_tokens
from spanloom.law.classes import CLASSES
from spanloom.law.documents import Documents
from spanloom.law.grammar import ROLES
from spanloom.law.judging import Judged

SPAN_NAMES = ("context", "trained and sampled", "trained, but never sampled", "sampled, but not trained")
"""The last two: trained but not sampled by the model; sampled but not trained."""

AROUND = 400
"""How many tokens are shown before and after the place of a finding."""


def shown_document(
    auditor: Auditor, documents: Documents, judged: Judged, number: int, place: int, name: str
) -> ShownDocument:
    """A document of a batch with the finding `name`, around the token `place` of the batch."""
    end = int(documents.ends[number])
    start = end - int(documents.lengths[number])
    first, last = max(start, place - AROUND), min(end, place + AROUND)
    tokens = documents.tokens[first:last]
    trained, sampled = documents.trained[first:last], judged.sampled[first:last]
    spans = np.where(trained, np.where(sampled, 1, 2), np.where(sampled, 3, 0)).astype(np.uint8)
    disk = list(zip([*trained[1:].tolist(), 0], [*spans[1:].tolist(), 0], strict=True))
    shown = shown_tokens(
        tokens.tolist(),
        spans.tolist(),
        trained.tolist(),
        [(int(flag), span) for flag, span in disk],
        auditor.model.tokenizer.vocabulary,
    )
    frames = judged.frames.frame_of(np.arange(first, last))
    edges = np.flatnonzero((np.diff(spans) != 0) | (np.diff(frames) != 0)) + 1
    bounds = [0, *edges.tolist(), last - first]
    messages = tuple(
        ShownMessage(
            first=begin,
            last=stop,
            role=ROLES[int(judged.frames.roles[frames[begin]])],
            channel="",
            span=int(spans[begin]),
            trained=spans[begin] in (1, 2),
        )
        for begin, stop in pairwise(bounds)
        if begin < stop
    )
    left_out = (documents.lengths[number] - (last - first)).item()
    notes = [documents.place(number), f"token {place - start}", CLASSES[name].meaning]
    return ShownDocument(
        split=name,
        shard=0,
        sequence=int(documents.rows[number]),
        row=int(documents.rows[number]),
        id=None,
        groups={},
        span_names=SPAN_NAMES,
        tokens=tuple(shown),
        messages=messages,
        notes=tuple(notes + ([f"{left_out:,} tokens of it are not shown"] if left_out else [])),
    )


def cut(document: ShownDocument, around: int) -> ShownDocument:
    """The tokens around the first one that is wrongly trained or untrained; without one, around the middle."""
    wrong = [place for place, token in enumerate(document.tokens) if token.span > 1]
    middle = wrong[0] if wrong else len(document.tokens) // 2
    first, last = max(0, middle - around), min(len(document.tokens), middle + around)
    messages = tuple(
        replace(message, first=max(message.first, first) - first, last=min(message.last, last) - first)
        for message in document.messages
        if message.last > first and message.first < last
    )
    return replace(document, tokens=document.tokens[first:last], messages=messages)
