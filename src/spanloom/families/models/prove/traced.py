"""Method A: finds each text of the run in F by the marks that it carries through the template.

In: the marks of F from `render_traced`, the fields of all messages, the place of the run, the end of P. Out: where the
run's texts are in F, in order. Raises RefusedError unless each text is in F once and whole, as given or trimmed, with
no other text between them. The name of a function or an argument may be there twice: `<place>Ouagadougou</place>`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from spanloom.families.models.errors import RefusedError
from spanloom.families.models.form import CALL_KEY, CALL_NAME, CALL_TEXT, CONTENT
from spanloom.families.models.prove.fields import Field
from spanloom.families.models.prove.refusals import (
    BESIDE_DROPPED,
    CALLS_DROPPED,
    MIXED_TEXTS,
    REMEDIES,
    TEXT_ALTERED,
    TEXT_DROPPED,
)
from spanloom.tokenizers.traced_text import Mark

_OF_CALLS = (CALL_NAME, CALL_KEY, CALL_TEXT)
_MOST = 2
"""How often a name is written at most: that of an argument around its value, that of a function in a header too."""


@dataclass(frozen=True)
class Placed:
    """A text of the run in F: the characters [start, end). `number`: the number of its field, as in marks."""

    start: int
    end: int
    number: int
    field: Field


@dataclass(frozen=True)
class TracedRun:
    """`texts` in the order of F; `trimmed`: whether the template trimmed white space around one of them."""

    texts: tuple[Placed, ...]
    trimmed: bool


def texts_of_run(marks: Sequence[Mark], fields: Sequence[Field], run: int) -> TracedRun:
    """The run's texts in F. Raises RefusedError: `text_dropped`, `text_altered`."""
    pieces: dict[int, list[Mark]] = {number: [] for number, field in enumerate(fields) if field.message == run}
    for mark in marks:
        if mark[2] in pieces:
            pieces[mark[2]].append(mark)
    placed: list[Placed] = []
    trimmed = False
    for number, parts in pieces.items():
        field = fields[number]
        if not parts:
            if field.required:
                raise RefusedError(TEXT_DROPPED, f"the template drops {shown(field)}", _remedy(field, fields))
            continue
        if not field.required and not field.text.strip():
            continue
        written = _occurrences(parts) if field.kind in (CALL_NAME, CALL_KEY) else [parts]
        if not all(_is_whole(each, field.text) for each in written) or len(written) > _MOST:
            times = sum(mark[3] == 0 for mark in parts)
            what = f"writes {times} times" if times > 1 else "does not write as it is"
            raise RefusedError(TEXT_ALTERED, f"the template {what}: {shown(field)}", REMEDIES[TEXT_ALTERED])
        placed += (Placed(each[0][0], each[-1][1], number, field) for each in written)
        trimmed |= parts[0][3] > 0 or parts[-1][4] < len(field.text)
    return TracedRun(tuple(sorted(placed, key=lambda text: text.start)), trimmed)


def check_alone(marks: Sequence[Mark], fields: Sequence[Field], run: int, prompt: int, last: int) -> None:
    """Raises RefusedError (`mixed_texts`) for a text of the run within P, or a text of another message in the run."""
    for start, end, number, *_ in marks:
        field = fields[number]
        inside = end > prompt and start < last
        if field.message == run and start < prompt:
            message = f"the template writes {shown(field)} before the end of the prompt"
        elif field.message != run and inside:
            message = f"the template writes {shown(field)} of message {field.message} into the run"
        else:
            continue
        raise RefusedError(MIXED_TEXTS, message, REMEDIES[MIXED_TEXTS])


def _remedy(dropped: Field, fields: Sequence[Field]) -> str:
    if dropped.kind in _OF_CALLS:
        return CALLS_DROPPED
    calls = any(field.message == dropped.message and field.kind in _OF_CALLS for field in fields)
    return BESIDE_DROPPED if calls and dropped.kind == CONTENT else REMEDIES[TEXT_DROPPED]


def _occurrences(parts: Sequence[Mark]) -> list[list[Mark]]:
    """The pieces of a text, divided where the text begins again."""
    written: list[list[Mark]] = []
    for mark in parts:
        if not written or mark[3] <= written[-1][-1][3]:
            written.append([])
        written[-1].append(mark)
    return written


def _is_whole(parts: Sequence[Mark], text: str) -> bool:
    """Whether the pieces are contiguous, in F and in the field, and omit only white space at both ends."""
    first, last = parts[0][3], parts[-1][4]
    if not all(mark[5] for mark in parts) or text[:first].strip() or text[last:].strip():
        return False
    return all(before[1] == after[0] and before[4] == after[3] for before, after in pairwise(parts))


def shown(field: Field) -> str:
    """A text for an error message: its kind and its first characters."""
    text = field.text if len(field.text) <= 40 else field.text[:37] + "…"
    return f"{field.kind} {text!r}"
