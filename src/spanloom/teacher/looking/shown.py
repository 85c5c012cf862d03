"""Documents to look at, with what a teacher expected at each trained token.

In: `ShownDocument`s and opened signals. Out: the same documents, their tokens with a `ShownScore`. A score of position
t is that of token t + 1, the label.
"""

from dataclasses import replace

import numpy as np

from spanloom.dataset.document import ShownDocument, ShownScore
from spanloom.dataset.family import Vocabulary
from spanloom.teacher.reader import TeacherSignals
from spanloom.text import hex_bytes


def with_scores(document: ShownDocument, signals: TeacherSignals, vocabulary: Vocabulary) -> ShownDocument:
    """The document with the scores of its tokens; with a note if it has labels, but no signals.

    Raises DatasetError if the document has other labels than its signals.
    """
    disk = np.array([token.disk for token in document.tokens]).reshape(-1, 2)
    positions = signals.scored(disk[:, 0], disk[:, 1])
    if not positions.size:
        return document
    stored = signals.entries((document.split, document.shard, document.sequence), positions.size)
    if stored is None:
        return replace(document, notes=(*document.notes, "the teacher has no signals of this document"))
    texts = {token: _text(vocabulary, token) for token in np.unique(stored.ids).tolist()}
    tokens = list(document.tokens)
    known = signals.content.own
    for number, position in enumerate(positions.tolist()):
        ids, logprobs = stored.ids[number].tolist(), stored.logprobs[number].tolist()
        label = tokens[position + 1].id
        ranked = logprobs[ids.index(label)] if label in ids else logprobs[-1]
        score = ShownScore(
            own=float(stored.own[number]) if known else ranked,
            exact=known or label in ids,
            top=tuple((token, texts[token], value) for token, value in zip(ids, logprobs, strict=True)),
            rest=float(stored.rest[number]),
        )
        tokens[position + 1] = replace(tokens[position + 1], score=score)
    notes = (
        ()
        if known
        else (
            f"the signals were imported: a token that is not among the {signals.content.k} most "
            "probable has the log-probability of the last of these, which is at least its own",
        )
    )
    return replace(document, tokens=tuple(tokens), notes=(*document.notes, *notes))


def _text(vocabulary: Vocabulary, token: int) -> str:
    """A token alone: its name, its text, or its bytes if they are a part of a character."""
    if vocabulary.is_special(token):
        return vocabulary.name(token)
    piece = vocabulary.piece(token)
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return hex_bytes(piece)
