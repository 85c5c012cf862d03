"""The text of each document of traces, read from its tokens, against the template, its row and the options.

In: documents on disk with their rows, the table of the dataset's tokenizer. Out: findings. No text is encoded: tokens
that give the right text by another way to cut it are found only where lines are encoded again.

    text     <start_of_turn>user\\n … <start_of_turn>model\\n   Reasoning:\\n1. …\\n   Answer: 42<end_of_turn>
    row                                                      response_start
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.manifest import Content
from spanloom.dataset.validate.disk_documents import SpanDocuments
from spanloom.families.traces.render import (
    ANSWER,
    INSTRUCTION,
    REASONING,
    SEAM,
    TEMPLATE_CONTROLS,
    TURN_END,
    TURN_MARKS,
    USER_HEAD,
    count_controls,
)
from spanloom.families.traces.verify.documents import ANSWER as ANSWER_SPAN
from spanloom.families.traces.verify.documents import CONTEXT
from spanloom.families.traces.verify.documents import REASONING as REASONING_SPAN
from spanloom.findings import Finding
from spanloom.supervision import shift_to_tokens
from spanloom.tokenizers.token_texts import Ints, Text, TokenTexts

CHAT = "tunix_sft"
_STEPS = f"{REASONING}1. "
_ANSWERS = re.compile(f"^{ANSWER}", re.MULTILINE)


def is_readable(texts: TokenTexts, form: str) -> bool:
    """Whether documents of this format can be read: in prompt-response pairs, tokens that the tokenizer adds behind the
    prompt are in the middle."""
    return form == CHAT or not texts.behind


def content_of(tokens: npt.NDArray[np.int32], texts: TokenTexts) -> tuple[int, int] | None:
    """The tokens [first, end) between those that the tokenizer adds and the EOD; None if those are missing."""
    first, end = len(texts.before), tokens.size - 1 - len(texts.behind)
    if first > end or tokens[:first].tolist() != [*texts.before] or tokens[end:-1].tolist() != [*texts.behind]:
        return None
    return first, end


def check_texts(documents: SpanDocuments, rows: pa.Table, content: Content, texts: TokenTexts) -> Iterator[Finding]:
    """Checks of each document its text, the spans of its tokens, and what its row says of both."""
    spans = shift_to_tokens(documents.span, documents.lengths)
    whole = texts.read(documents.tokens)
    columns = ("response_start", "boundary_tokens", "control_strings")
    about = rows.select(columns).to_pylist()
    marks = [texts.added[mark] for mark in TURN_MARKS if mark in texts.added]
    marked = np.concatenate([[0], np.cumsum(np.isin(documents.tokens, marks))])
    stop = 0
    for number, length in enumerate(documents.lengths.tolist()):
        start, stop = stop, stop + length
        place = content_of(documents.tokens[start:stop], texts)
        if place is None:
            yield documents.finding("frames", "the tokens that the tokenizer adds to a text are missing", number)
            continue
        first, end = start + place[0], start + place[1]
        for fault in _faults(whole, first, end, spans[first:end], about[number], content.config, texts):
            yield documents.finding("frames", fault, number)
        if content.config["format"] == CHAT and content.config["control_tokens"] != "verbatim":
            held = int(marked[stop] - marked[start])
            if len(marks) == len(TURN_MARKS) and held != TEMPLATE_CONTROLS:
                message = f"{held} control tokens of turns, and the template writes {TEMPLATE_CONTROLS}"
                yield documents.finding("frames", message, number)


def _faults(
    whole: Text,
    first: int,
    end: int,
    spans: npt.NDArray[np.uint8],
    row: Mapping[str, Any],
    config: Mapping[str, Any],
    texts: TokenTexts,
) -> Iterator[str]:
    """What is wrong with one document, whose text is that of the tokens [first, end)."""
    text = whole.between(first, end)
    begins, ends = whole.offsets(first, end)
    chat, system = config["format"] == CHAT, config["system"]
    head = texts.as_read((USER_HEAD if chat else "") + (f"{system}\n\n" if system else ""))
    if not text.startswith(head):
        yield "the document does not begin with the template and the system text of the manifest"
    if chat and not text.endswith(TURN_END):
        yield f"the document does not end with {TURN_END}"
    held = count_controls(text) - count_controls(system or "") - (TEMPLATE_CONTROLS if chat else 0)
    if held != row["control_strings"]:
        yield f"control_strings is {row['control_strings']}, the text has {held}"
    if held and config["control_tokens"] in ("reject", "escape"):
        yield f"the text has {held} control strings, which control_tokens excludes"
    opens = SEAM if chat else INSTRUCTION
    # In a normal form of Unicode, texts may have other lengths than those that the row knows.
    moved = texts.forms is not None and not text.isascii()
    starts = [found.end() for found in re.finditer(re.escape(opens), text)] if moved else [row["response_start"]]
    starts = [each for each in starts if text[:each].endswith(opens) and text.startswith((_STEPS, ANSWER), each)]
    if not starts:
        yield "no response begins at response_start"
        return
    ways = [spans_of(begins, ends, each, answer) for each in starts for answer in _answers(text, each)]
    if not any(np.array_equal(spans, way) for way in ways):
        yield "the spans are not those of the text"
    straddling = {int(((begins < each) & (ends > each)).sum()) if chat else 0 for each in starts}
    if row["boundary_tokens"] not in straddling:
        yield f"boundary_tokens is {row['boundary_tokens']}, the text has {min(straddling)}"


def _answers(text: str, start: int) -> list[int]:
    """Where the answer may begin in a response: a text of a step may have such a line too."""
    if text.startswith(ANSWER, start):
        return [start]
    return [found.start() for found in _ANSWERS.finditer(text, start)]


def spans_of(begins: Ints, ends: Ints, response: int, answer: int) -> npt.NDArray[np.uint8]:
    """The span of each token, uint8 [T], by its characters. Tokens without characters are not trained."""
    spans = np.where(begins < answer, REASONING_SPAN, ANSWER_SPAN).astype(np.uint8)
    spans[(begins < response) | (begins == ends)] = CONTEXT
    return spans


def line_faults(
    line: Mapping[str, Any],
    form: str,
    response_start: int,
    tokens: npt.NDArray[np.int32],
    spans: npt.NDArray[np.uint8],
    texts: TokenTexts,
) -> bool:
    """Whether tokens, int32 [T], and spans, uint8 [T], both token-aligned, may be others than those of a line of an
    export. If so, the line is to be encoded again."""
    place = content_of(tokens, texts)
    text = line["prompts"] if form == CHAT else line["prompt"] + line["response"]
    if place is None or spans[: place[0]].any() or spans[place[1] :].any() or len(texts.as_read(text)) != len(text):
        return True
    whole = texts.read(tokens)
    if whole.between(*place) != texts.as_read(text):
        return True
    response: int = response_start if form == CHAT else len(line["prompt"])
    answers: Sequence[int] = [len(text) - len(f"{ANSWER}{line['final_answer']}{TURN_END}")] if form == CHAT else []
    answers = answers or [found.start() for found in _ANSWERS.finditer(text, response)]
    offsets = whole.offsets(*place)
    inner = spans[place[0] : place[1]]
    seamed = response == response_start and (form != CHAT or text[:response].endswith(SEAM))
    return not seamed or not any(np.array_equal(inner, spans_of(*offsets, response, each)) for each in answers)
