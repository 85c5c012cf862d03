"""The frame of an answer, as the template that the dataset carries writes it, against the text of each document.

In: template, options and tokenizer in the root; documents on disk with their rows. Out: findings. Small conversations
are rendered: what the template writes before and behind their answers is the frame.

    prompt  …<|start_header_id|>assistant<|end_header_id|>⏎⏎     `opens`: what the generation prompt adds
    answer  It is high tide.<|eot_id|>                           an end that the template adds is trained
    behind  the rest, which is not trained
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.manifest import Content
from spanloom.dataset.validate.disk_documents import DiskDocuments, SpanDocuments
from spanloom.families.toolcalls.format.control import END_TOKENS, EOM, PYTHON_TAG
from spanloom.families.toolcalls.recipe import TEMPLATE_NAME
from spanloom.families.toolcalls.verify.documents import kinds_of
from spanloom.findings import Finding
from spanloom.supervision import shift_to_tokens
from spanloom.tokenizers.chat_template import ChatTemplate, ChatTemplateError
from spanloom.tokenizers.token_texts import Ints, Text, TokenTexts

OWN, SPACED, ADDED, BARE = "own", "spaced", "added", "bare"
"""How an answer ends: with an end token of its own, with white space behind that, with one that the template adds, or
with none."""

Behind = Mapping[str, frozenset[str]]
"""How an answer ends → the texts that the template may write behind it."""


@dataclass(frozen=True, kw_only=True)
class AnswerFrame:
    """`begins`: what each text begins with; `opens`: what is before an answer; both may be empty."""

    begins: str
    opens: str
    behind: Behind

    @property
    def is_whole(self) -> bool:
        """Whether answers with an end of their own and others were seen."""
        return bool(self.behind[OWN] and self.behind[ADDED] | self.behind[BARE])


_CALL = f'{PYTHON_TAG}{{"name": "look_up", "parameters": {{"words": "tides"}}}}'
_TEXTS = ("Zanzibar", _CALL, f"Look: {_CALL}")
_ANSWERS = (
    *_TEXTS,
    "Quito is high.\n",
    *(text + end + space for text in _TEXTS for end in END_TOKENS for space in ("", "\n")),
)
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Finds things.",
        "parameters": {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]},
    },
}


def _conversations() -> Iterator[list[dict[str, str]]]:
    system, asked = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is it?"}
    called = [asked, {"role": "assistant", "content": _CALL + EOM}]
    yield [asked]
    yield [system, asked]
    yield [asked, asked]
    yield [system]
    yield [{"role": "assistant", "content": "Here."}]
    yield [system, asked, {"role": "assistant", "content": "Here."}, {"role": "user", "content": "And then"}]
    yield [asked, {"role": "assistant", "content": "Here."}]
    for role in ("tool", "ipython", "user"):
        found = {"role": role, "content": "Found 3"}
        yield [*called, found]
        yield [*called, found, {"role": "assistant", "content": "It is 3."}, asked]
        yield [*called, found, asked]


def frame_of(root: Path, content: Content) -> AnswerFrame | None:
    """The frame of the template in a root; None if there is none, or small conversations have several."""
    path = root / TEMPLATE_NAME
    try:
        text = path.read_text("utf-8") if path.is_file() else None
    except (OSError, ValueError):  # in the report already
        return None
    special = content.config["special_tokens"]
    return None if text is None else _found(text, tuple(sorted(special.items())))


@lru_cache(maxsize=2)
def _found(template: str, special_tokens: tuple[tuple[str, str], ...]) -> AnswerFrame | None:
    try:
        render = ChatTemplate(template, special_tokens=dict(special_tokens)).render
    except ChatTemplateError:
        return None
    prompts: list[str] = []
    opens: list[str] = []
    behind: dict[str, set[str | None]] = {answer: set() for answer in _ANSWERS}
    for messages, tools in product(_conversations(), (None, [_TOOL])):
        try:
            prompt = render(messages, tools=tools, add_generation_prompt=True)
            before = render(messages, tools=tools)
            texts = [render([*messages, {"role": "assistant", "content": text}], tools=tools) for text in _ANSWERS]
        except ChatTemplateError:
            continue
        prompts.append(prompt)
        opens.append(prompt.removeprefix(before) if prompt.startswith(before) else "")
        for answer, text in zip(_ANSWERS, texts, strict=True):
            behind[answer].add(text[len(prompt + answer) :] if text.startswith(prompt + answer) else None)
    # A template that writes an answer otherwise in some of the conversations may do so in documents too.
    if not prompts or len(set(opens)) > 1 or any(len(ways) > 1 for ways in behind.values()):
        return None
    endings: dict[str, set[str]] = {ending: set() for ending in (OWN, SPACED, ADDED, BARE)}
    for answer, (text_behind,) in behind.items():
        if text_behind is not None:
            ending, text = _ended(answer, text_behind)
            endings[ending].add(text)
    bos = dict(special_tokens).get("bos_token", "")
    return AnswerFrame(
        begins=bos if all(prompt.startswith(bos) for prompt in prompts) else "",
        opens=opens[0],
        behind={name: frozenset(texts) for name, texts in endings.items()},
    )


def _own_end(answer: str) -> str | None:
    if answer.endswith(END_TOKENS):
        return OWN
    return SPACED if answer.rstrip().endswith(END_TOKENS) else None


def _ended(answer: str, behind: str) -> tuple[str, str]:
    """How an answer ends, and what is behind the trained text."""
    if (own := _own_end(answer)) is not None:
        return own, behind
    end = next((token for token in END_TOKENS if behind.startswith(token)), None)
    return (BARE, behind) if end is None else (ADDED, behind.removeprefix(end))


def check_frames(
    documents: DiskDocuments, rows: pa.Table, content: Content, texts: TokenTexts, frame: AnswerFrame
) -> Iterator[Finding]:
    """Checks of each document what is before, in and behind its trained text, and what its row says of it."""
    mask = shift_to_tokens((documents.lossmask > 0).astype(np.uint8), documents.lengths)
    spans = shift_to_tokens(documents.span, documents.lengths) if isinstance(documents, SpanDocuments) else None
    whole, about = texts.read(documents.tokens), rows.select(["calls", "straddling"]).to_pylist()
    stop = 0
    for number, length in enumerate(documents.lengths.tolist()):
        start, stop = stop, stop + length
        trained = np.flatnonzero(mask[start:stop])
        if trained.size == 0 or trained[-1] - trained[0] >= trained.size or trained[-1] == length - 1:
            continue  # in the report already
        cut = content.config["max_length"] == length - 1
        answer = _Answer(whole, start, stop - 1, int(trained[0]), int(trained[-1]), cut=cut)
        own = None if spans is None else spans[start : stop - 1]
        if texts.forms is not None and not answer.text.isascii():
            own = None
        for fault in answer.faults(frame, about[number], own):
            yield documents.finding("frames", fault, number)


class _Answer:
    """The text of a document, and where its trained tokens are. `cut`: it may end before the template does."""

    def __init__(self, whole: Text, start: int, stop: int, first: int, last: int, *, cut: bool) -> None:
        self.text = whole.between(start, stop)
        self.begins, self.ends = whole.offsets(start, stop)
        self.first, self.last, self.cut = first, last, cut
        filled = np.flatnonzero(self.begins < self.ends)
        before, behind = filled[filled < first], filled[filled > last]
        # The answer begins behind the begin of the token before it, and up to its first token; its end likewise.
        self.starts = range(int(self.begins[before[-1]]) + 1 if before.size else 0, int(self.begins[first]) + 1)
        end = int(self.begins[behind[0]]) if behind.size else len(self.text)
        self.stops = range(int(self.begins[last]) + 1, end + 1)

    def faults(self, frame: AnswerFrame, row: Mapping[str, Any], spans: npt.NDArray[np.uint8] | None) -> Iterator[str]:
        """What contradicts the frame. `spans`: uint8 [T] of the tokens, None if there are none to check."""
        if not self.text.startswith(frame.begins):
            yield f"the document does not begin with {frame.begins}"
        starts = [start for start in self.starts if self.text[:start].endswith(frame.opens)]
        if not starts:
            yield f"the trained text does not begin behind {frame.opens!r}"
            return
        # Without a text that the template writes there, the begin and the end are not certain.
        answers = list(self._answers(starts, frame.behind))
        if not answers:
            yield "the trained text does not end as the template ends an answer"
            return
        if not any((PYTHON_TAG in answer) == row["calls"] for _, answer in answers):
            yield f"calls is {row['calls']}, the answer says otherwise"
        straddling = {bool(((self.begins < start) & (start < self.ends)).any()) for start, _ in answers}
        if row["straddling"] not in straddling:
            yield f"straddling is {row['straddling']}, the tokens say otherwise"
        if spans is not None and not any(np.array_equal(spans, self._parts(*answer)) for answer in answers):
            yield "the spans are not those of the answer's parts"

    def _answers(self, starts: Sequence[int], behind: Behind) -> Iterator[tuple[int, str]]:
        """Where the answer may begin, and its text without an end that the template added."""
        for start, (ending, texts) in product(starts, behind.items()):
            for stop in {stop for text in texts for stop in self._stops(text)}:
                answer = self.text[start:stop]
                if ending == ADDED and answer.endswith(END_TOKENS):
                    yield start, next(answer.removesuffix(end) for end in END_TOKENS if answer.endswith(end))
                elif ending != ADDED and ending == (_own_end(answer) or BARE):
                    yield start, answer

    def _stops(self, behind: str) -> Iterator[int]:
        """Where an answer may end that this text follows."""
        stop = len(self.text) - len(behind)
        if stop in self.stops and self.text.endswith(behind):
            yield stop
        if self.cut:
            yield from (stop for stop in self.stops if behind.startswith(self.text[stop:]))

    def _parts(self, start: int, answer: str) -> npt.NDArray[np.uint8]:
        return parts_of((self.begins, self.ends), start, self.first, self.last, answer)


def parts_of(offsets: tuple[Ints, Ints], start: int, first: int, last: int, answer: str) -> npt.NDArray[np.uint8]:
    """The part of each token, uint8 [T]: of the trained ones from `first` to `last` the part of their first character.

    `offsets`: first and last characters, int64 [T] each; `start`: the first character of the answer. An end that the
    template adds joins the last part, and a token without characters that of the token before it.
    """
    begins, ends = (each[first : last + 1] for each in offsets)
    filled = np.maximum.accumulate(np.where(begins < ends, np.arange(begins.size), 0))
    kinds = np.array(kinds_of(answer), np.uint8)
    parts = np.zeros(offsets[0].size, np.uint8)
    parts[first : last + 1] = kinds[np.clip(begins[filled] - start, 0, kinds.size - 1)]
    return parts
