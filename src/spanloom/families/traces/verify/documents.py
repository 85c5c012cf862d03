"""Checks every document of a token dataset of traces, from the arrays on disk.

In: consecutive documents as stored on disk, their rows, and lines of the export that they were made from. Out: findings
with sequence and offset. This code shares nothing with the code that renders, masks and shifts.

    token-aligned spans of a document    0 … 0   1 … 1   2 … 2   0       context, reasoning, answer, EOD
    on disk, shifted to the labels       0 … 1   1 … 2   2 … 0   0
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.manifest import Content
from spanloom.dataset.validate.disk_documents import SpanDocuments
from spanloom.families.traces.render import count_controls
from spanloom.findings import Finding
from spanloom.records.json_lines import json_value

CONTEXT, REASONING, ANSWER = 0, 1, 2


def check_documents(documents: SpanDocuments, content: Content) -> Iterator[Finding]:
    """Checks EOD, ids, values, mask = (span > 0), the shift, and the order of the spans."""
    span, last = documents.span, documents.last
    yield from documents.check_tokens(content)
    inside, number = documents.inner_eods(content.tokenizer.eod)
    if content.config["control_tokens"] == "verbatim":  # then each document may have those of the template
        counts = np.bincount(number, minlength=documents.lengths.size)
        inside = inside[counts[number] > counts.min(initial=documents.tokens.size)]
    else:
        inside = np.setdiff1d(np.flatnonzero(documents.tokens == content.tokenizer.eod), last, assume_unique=True)
    yield from documents.at("eod", "EOD inside a document", inside)
    yield from documents.at("values", "a span id other than 0, 1 or 2", np.flatnonzero(span > ANSWER))
    yield from documents.check_labels()
    # Context may be in between: tokens without characters are never trained.
    learned_at = np.flatnonzero(span)
    document = np.searchsorted(last, learned_at)
    falls = (np.diff(span[learned_at].astype(np.int8)) < 0) & (np.diff(document) == 0)
    yield from documents.at("span", "reasoning comes after the answer", learned_at[1:][falls])
    yield from documents.check_trained("the document has nothing that is learned")


def check_rows(
    documents: SpanDocuments, rows: pa.Table, digests: npt.NDArray[np.uint64], content: Content
) -> Iterator[Finding]:
    """Checks the rows of these documents: numbering, token counts, and the split rule applied to each id."""
    yield from documents.check_rows(rows, documents.counted(("context", "reasoning", "answer")))
    yield from documents.check_order(rows, "dataset")
    if content.config.get("weight"):
        yield from documents.check_weights(rows)
    yield from documents.check_split(rows.column("trace_id"), digests, content)


_TEXTS = {"tunix_sft": ("id", "prompts", "final_answer"), "training_example": ("id", "prompt", "response")}


def exported_line(raw: bytes, form: str) -> dict[str, Any] | str:
    """The value of a line of an export, or a text that says why the line is invalid."""
    try:
        line = json_value(raw)
    except (ValueError, RecursionError) as fault:
        return f"the line is no JSON: {fault}"
    if not isinstance(line, dict) or not isinstance(line.get("metadata"), dict):
        return "the line is no record of an export: an object with metadata"
    if missing := [name for name in _TEXTS[form] if not isinstance(line.get(name), str)]:
        return f"the line is no record of the format {form}: {', '.join(missing)} is no text"
    return line


def wrong_line(line: Mapping[str, Any], config: Mapping[str, Any], row: Mapping[str, Any]) -> Iterator[str]:
    """Compares a line of an export with `trace_id` and `source` of the document's row. Returns what differs."""
    trace_id, source = row["trace_id"], row["source"]
    wanted = trace_id if config["format"] == "tunix_sft" else _example_id(trace_id)
    if line["id"] != wanted:
        yield f"the line is {line['id']}, the document is of trace {trace_id}, which is {wanted} there"
    stated = line["metadata"].get("source")
    if source != (stated if isinstance(stated, str) else None):
        yield f"source is {source!r}, the line says {stated!r}"
    if (key := config.get("weight")) and (weight := _metadata(line["metadata"], key)) != row["weight"]:
        yield f"the weight is {row['weight']!r}, {key} of the line is {weight!r}"
    text = line["prompts"].removeprefix(_USER) if config["format"] == "tunix_sft" else line["prompt"]
    if not text.startswith(config["system"] or ""):
        yield "the line does not begin with the system text of the manifest"


def _metadata(metadata: Mapping[str, Any], key: str) -> Any:
    """The value of a key of a trace's meta: in the line's metadata, or below `meta` if the exporter moved it there."""
    moved = metadata.get("meta")
    return moved[key] if isinstance(moved, Mapping) and key in moved else metadata.get(key)


def _example_id(trace_id: str) -> str:
    try:
        return str(uuid5(UUID(trace_id), "training_example"))
    except ValueError:
        return "nothing, since its id is no UUID,"


def controls_of(line: Mapping[str, Any], config: Mapping[str, Any]) -> int:
    """The number of control strings in the content of a line: all in its text, without those of template and system."""
    if config["format"] == "tunix_sft":
        return count_controls(line["prompts"]) - 4 - count_controls(config["system"] or "")
    return count_controls(line["prompt"]) + count_controls(line["response"]) - count_controls(config["system"] or "")


_USER, _SEAM, _END = "<start_of_turn>user\n", "<end_of_turn>\n<start_of_turn>model\n", "<end_of_turn>"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """One document, token by token. `spans`: by token, every allowed values; `straddling`: tokens across the seam."""

    tokens: list[int]
    spans: list[list[int]]
    straddling: int


def response_starts(line: Mapping[str, Any], form: str) -> list[int]:
    """Where the response of a line may begin; several if its prompt holds text like the template's."""
    if form == "tunix_sft":
        return [found.end() for found in re.finditer(re.escape(_SEAM), line["prompts"])]
    return [len(line["prompt"])]


def expected_document(
    line: Mapping[str, Any], form: str, response_start: int, encode: Any, eod: int, *, as_text: bool = False
) -> Expected | str:
    """The document of one line of an export, or a text that says why the line is invalid.

    `encode`: text, whether special tokens are added, and the only characters that are control tokens → ids and
    offsets. `as_text`: only the template's marks are control tokens.
    """
    if form == "tunix_sft":
        text, answer = line["prompts"], f"Answer: {line['final_answer']}{_END}"
        if not (text.startswith(_USER) and text[:response_start].endswith(_SEAM) and text.endswith(answer)):
            return "the line is not of the template's shape, or the row has another response_start"
        marks = _marks(text, response_start) if as_text else None
        ids, offsets = encode(text, True, marks)
        spans = [*_spans(offsets, response_start, len(text) - len(answer)), CONTEXT]
        straddling = sum(begin < response_start < end for begin, end in offsets)
        return Expected(tokens=[*ids, eod], spans=[spans], straddling=straddling)
    prompt, response = line["prompt"], line["response"]
    if len(prompt) != response_start:
        return "the row has another response_start than the prompt's length"
    # Content may contain a line that begins like the answer: then the response does not show where the answer begins.
    answers = [match.start() for match in re.finditer(r"^Answer: ", response, re.MULTILINE)]
    if not answers:
        return "the response has no answer"
    none: list[tuple[int, int]] | None = [] if as_text else None
    ids, offsets = encode(prompt, True, none)
    more, places = encode(response, False, none)
    context = [CONTEXT] * len(ids)
    return Expected(
        tokens=[*ids, *more, eod],
        spans=[[*context, *_spans(places, 0, answer), CONTEXT] for answer in answers],
        straddling=0,
    )


def _marks(text: str, response_start: int) -> list[tuple[int, int]]:
    """The characters of the template's four marks in a text."""
    opening, seam = len("<start_of_turn>"), response_start - len(_SEAM)
    model = seam + len(_END) + 1
    return [
        (0, opening),
        (seam, seam + len(_END)),
        (model, model + opening),
        (len(text) - len(_END), len(text)),
    ]


def _spans(offsets: Sequence[tuple[int, int]], response: int, answer: int) -> list[int]:
    spans = []
    for begin, end in offsets:
        if begin == end or begin < response:
            spans.append(CONTEXT)
        else:
            spans.append(REASONING if begin < answer else ANSWER)
    return spans
