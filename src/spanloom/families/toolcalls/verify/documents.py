"""Checks every document of a tool-call token dataset, reading the arrays on disk.

In: a run of documents as they are on disk, the rows that describe them; a sample of the source. Out: findings with
sequence and offset. This code is independent of the code that renders, masks and shifts.

    token-aligned mask of a document     0 … 0 1 … 1 0 … 0      prompt, answer, text that the template adds, EOD
    on disk, shifted to the labels       0 … 1 1 … 0 0 … 0
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.manifest import Content
from spanloom.dataset.validate.disk_documents import DiskDocuments, SpanDocuments
from spanloom.families.toolcalls.format.tables import WEIGHTS
from spanloom.families.toolcalls.tokens import masks
from spanloom.findings import Finding

_ENDS = ("<|eom_id|>", "<|eot_id|>")


_PROSE, _CALL, _ARGUMENTS = 1, 2, 3


def check_documents(documents: DiskDocuments, content: Content) -> Iterator[Finding]:
    """Checks EOD, ids, values, the shift, spans if present, and that each document has one run of trained tokens."""
    lossmask, lengths, last = documents.lossmask, documents.lengths, documents.last
    max_length = content.config["max_length"]
    yield from documents.check_tokens(content)
    yield from documents.check_labels()
    # A run of trained labels begins where the previous label of the same document is not trained.
    begins = lossmask > 0
    begins[1:] &= lossmask[:-1] == 0
    begins[last[:-1] + 1] = lossmask[last[:-1] + 1] > 0
    runs = np.add.reduceat(begins.astype(np.int64), last - lengths + 1)
    for at in np.flatnonzero(runs != 1).tolist():
        fault = "no learned token" if runs[at] == 0 else f"{runs[at]} runs of learned tokens, not one"
        yield documents.finding("mask", f"the document has {fault}", at)
    inside, number = documents.inner_eods(content.tokenizer.eod)
    if np.unique(number).size < lengths.size:  # otherwise the template writes it into each document
        yield from documents.at("eod", "EOD inside a document", inside)
    if isinstance(documents, SpanDocuments):
        yield from _check_parts(documents)
    if max_length is not None:
        for at in np.flatnonzero(lengths > max_length + 1).tolist():
            yield documents.finding("length", f"more than {max_length} tokens and EOD", at)


def _check_parts(documents: SpanDocuments) -> Iterator[Finding]:
    """Checks that span ids are valid and that arguments are inside a call."""
    span = documents.span
    yield from documents.at("values", "a span id other than 0 to 3", np.flatnonzero(span > _ARGUMENTS))
    before = np.concatenate([[0], span[:-1]])
    before[np.cumsum(documents.lengths, dtype=np.int64) - documents.lengths] = 0
    misplaced = (span == _ARGUMENTS) & (before != _CALL) & (before != _ARGUMENTS)
    yield from documents.at("span", "arguments do not follow a call", np.flatnonzero(misplaced))


def check_rows(
    documents: DiskDocuments, rows: pa.Table, digests: npt.NDArray[np.uint64], content: Content
) -> Iterator[Finding]:
    """Checks the rows that describe these documents: numbering, token counts, weights, subtypes, and the split rule."""
    yield from documents.check_rows(rows, documents.counted(content.span_names))
    yield from documents.check_weights(rows)
    for at, subtype in enumerate(rows.column("subtype").to_pylist()):
        if subtype not in WEIGHTS:
            yield documents.finding("subtype", f"the subtype {subtype!r} is unknown", at)
    yield from documents.check_order(rows, "samples")
    yield from documents.check_split(rows.column("sample_id"), digests, content)


Encode = Callable[..., tuple[Sequence[int], Sequence[tuple[int, int]]]]
"""A text, and optionally the only characters that are control tokens, as [start, end) → ids and offsets."""


@dataclass(frozen=True, kw_only=True)
class Controls:
    """What becomes of control tokens in texts that are not the assistant's: `how`; the EOD and the special tokens."""

    how: str
    eod: str
    special: frozenset[str]

    @property
    def pattern(self) -> re.Pattern[str]:
        longest_first = sorted({*self.special, self.eod}, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)))


@dataclass(frozen=True, kw_only=True)
class ExpectedDocument:
    """The document expected from one sample; all lists are token-aligned and end with EOD.

    mask        1 = trained
    parts       0 context, 1 prose, 2 call, 3 arguments
    straddling  whether a token begins in the prompt and ends in the answer
    controls    control tokens in texts that are not the assistant's
    """

    tokens: list[int]
    mask: list[int]
    parts: list[int]
    straddling: bool
    controls: int


@dataclass(frozen=True, kw_only=True)
class ExpectedText:
    """The text expected from one sample.

    answer     `assistant_raw`; trained is text[begin:end], with an end token that the template adds
    held       the control tokens in texts that are not the assistant's, and where they are
    places     the only characters that are control tokens, [start, end); None: all that the tokenizer finds
    refused    why the options refuse the sample, or None
    """

    text: str
    answer: str
    begin: int
    end: int
    held: Sequence[tuple[str, str]]
    places: Sequence[tuple[int, int]] | None
    refused: str | None


def expected_text(
    sample: Mapping[str, Any], render: Callable[..., str], tools: Any, controls: Controls | None = None
) -> ExpectedText | str:
    """The text expected from one sample, or the reason that it has none. Raises ChatTemplateError.

    `render`: a function (messages, `tools`, `add_generation_prompt`) → text.
    """
    answer, messages = sample.get("assistant_raw"), sample.get("messages")
    if not isinstance(answer, str) or not answer.strip() or not isinstance(messages, list):
        return masks.NO_SAMPLE
    if not all(isinstance(message, dict) for message in messages):
        return masks.NO_SAMPLE
    prompt = render(messages, tools=tools, add_generation_prompt=True)
    whole = render([*messages, {"role": "assistant", "content": answer}], tools=tools)
    rest = whole.removeprefix(prompt)
    if (rest == whole and prompt) or not rest.startswith(answer):
        return masks.NO_SPAN
    end = len(prompt) + len(answer)
    if not answer.rstrip().endswith(_ENDS):
        end += next((len(token) for token in _ENDS if rest[len(answer) :].startswith(token)), 0)
    held: list[tuple[str, str]] = []
    if controls is not None:
        pattern = controls.pattern
        held = [(where, found[0]) for where, text in _others(messages, tools) for found in pattern.finditer(text)]
    places = None
    if controls is not None and held and controls.how == "text":
        crossed = [each if each.get("role") == "assistant" else _crossed(each, controls.pattern) for each in messages]
        plain = render([*crossed, {"role": "assistant", "content": answer}], tools=_crossed(tools, controls.pattern))
        if len(plain) != len(whole):
            return masks.NOT_AS_TEXT
        places = [match.span() for match in controls.pattern.finditer(plain)]
    refused = None if controls is None else _refused(messages, answer, held, controls)
    return ExpectedText(
        text=whole, answer=answer, begin=len(prompt), end=end, held=held, places=places, refused=refused
    )


def expected_document(
    sample: Mapping[str, Any],
    render: Callable[..., str],
    tools: Any,
    encode: Encode,
    eod: int,
    max_length: int | None,
    controls: Controls | None = None,
) -> ExpectedDocument | str:
    """The document expected from one sample, or the reason that it has none. Raises ChatTemplateError.

    `render`: a function (messages, `tools`, `add_generation_prompt`) → text.
    """
    text = expected_text(sample, render, tools, controls)
    if isinstance(text, str):
        return text
    ids, offsets = encode(text.text) if text.places is None else encode(text.text, text.places)
    inside = [text.begin <= begin < text.end and begin < stop for begin, stop in offsets]
    if True not in inside:
        return masks.NO_TOKENS
    first, after = inside.index(True), len(inside) - inside[::-1].index(True)
    if max_length is not None and after > max_length:
        return masks.CUT
    if text.refused is not None:
        return text.refused
    mask = [int(first <= at < after) for at in range(len(ids))]
    kinds = kinds_of(text.answer)
    parts: list[int] = []
    for at, (begin, stop) in enumerate(offsets):
        # An end token added by the template joins the last part.
        character = min(begin - text.begin, len(text.answer) - 1)
        parts.append(0 if not mask[at] else parts[-1] if begin == stop else kinds[character])
    return ExpectedDocument(
        tokens=[*ids[:max_length], eod],
        mask=[*mask[:max_length], 0],
        parts=[*parts[:max_length], 0],
        straddling=any(begin < text.begin < stop for begin, stop in offsets),
        controls=len(text.held),
    )


def _refused(
    messages: Sequence[Mapping[str, Any]], answer: str, held: Sequence[tuple[str, str]], controls: Controls
) -> str | None:
    for where, token in held:
        if controls.how == "refuse" or (controls.how == "as-served" and token == controls.eod):
            return f"{masks.CONTROL}{token} in {where}"
    own = [text for message in messages if message.get("role") == "assistant" for text in _leaves(message)]
    if controls.eod not in _ENDS and any(controls.eod in text for text in (*own, answer)):
        return f"{masks.CONTROL}{controls.eod} in a message of assistant"
    return None


def _others(messages: Sequence[Mapping[str, Any]], tools: Any) -> Iterator[tuple[str, str]]:
    """Where a text is that is not the assistant's, and the text."""
    for message in messages:
        if message.get("role") != "assistant":
            yield from ((f"a message of {message.get('role')}", text) for text in _leaves(message))
    yield from (("the tools", text) for text in _leaves(tools))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inside in value.items():
            yield key
            yield from _leaves(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from _leaves(inside)


def _crossed(value: Any, pattern: re.Pattern[str]) -> Any:
    """A JSON value with crosses in place of control tokens."""
    if isinstance(value, str):
        return pattern.sub(lambda match: "x" * len(match[0]), value)
    if isinstance(value, dict):
        return {_crossed(key, pattern): _crossed(inside, pattern) for key, inside in value.items()}
    return [_crossed(inside, pattern) for inside in value] if isinstance(value, list) else value


_TAG = "<|python_tag|>"
_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]', re.DOTALL)
_REST = re.compile(r"(?:\s*<\|eo[mt]_id\|>)+")


def kinds_of(answer: str) -> list[int]:
    """The part of each character of an answer: 1 prose, 2 call, 3 arguments."""
    kinds = [_PROSE] * len(answer)
    first, *behind = [*(match.start() for match in re.finditer(re.escape(_TAG), answer)), len(answer)]
    if not answer[:first].strip():
        kinds[:first] = [_CALL] * first
    for after in behind:
        begin = first + len(_TAG)
        value, length = _json_value(answer[begin:after])
        end, rest = begin + length, _REST.match(answer, begin + length, after)
        whole = length > 0 and (rest is not None or not answer[end:after].strip())
        stop = after if not whole or rest is None or not answer[rest.end() : after].strip() else rest.end()
        kinds[first:stop] = [_CALL] * (stop - first)
        if whole and isinstance(value, dict):
            places = _objects_of(answer, begin, end)
            inside = places.get("parameters") or places.get("arguments") or range(0)
            for at in inside:
                kinds[at] = _ARGUMENTS
        first = after
    return kinds


def _json_value(text: str) -> tuple[Any, int]:
    """The JSON value at the start of a text, after blanks, and its end; None and 0 if there is none."""

    def refuse(name: str) -> Any:
        raise ValueError(name)

    decoder = json.JSONDecoder(parse_constant=refuse)
    try:
        value, end = decoder.raw_decode(text, len(text) - len(text.lstrip()))
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None, 0
    return value, end


def _objects_of(text: str, begin: int, end: int) -> dict[str, range]:
    """Key → characters of its value, for the values of the JSON object in [begin, end) that are objects. The last of
    duplicate keys counts."""
    places: dict[str, range] = {}
    depth, opened = 0, 0
    name, key = "", ""  # the last string at this depth, and the last string that a colon followed
    for match in _MARK.finditer(text, begin, end):
        mark = match.group()
        if mark in ("{", "["):
            if depth == 1:
                opened = match.start()
            depth += 1
        elif mark in ("}", "]"):
            depth -= 1
            if depth == 1 and mark == "}":
                places[key] = range(opened, match.end())
        elif depth != 1:
            continue
        elif mark == ":":
            key = name
            places.pop(key, None)
        elif mark != ",":
            name = json.loads(mark)
    return places
