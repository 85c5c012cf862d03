"""Datasets of conversations (`harmony_chat`) that are false and fit together.

Each forgery changes one thing, and all that follows from it but for what only the format, the tokens or the source can
tell: hashes, counts, rows, and mask = (span > 0) agree.
"""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spanloom
from corruption.dataset import Dataset, Document, listed
from spanloom.families.harmony.build import BuildOptions, build
from spanloom.families.harmony.contract.history import CutRules
from support.harmony_forgeries import (
    CALL,
    CONSTRAIN,
    END,
    EOD,
    MESSAGE,
    RETURN,
    Part,
    forged,
    label,
    parts,
    replaced,
)
from support.model_datasets import write_conversations

WORDS = ["river", "mount", "tidal", "moons", "house", "train", "green", "brown", "olden", "seven", "eight", "write"]
TOOL = {
    "name": "find",
    "description": "Finds.",
    "parameters": {"type": "object", "properties": {"what": {"type": "string"}}},
}
VALID_FRACTION = 0.2
IT = 3206
"""The token of `It`."""

Forge = Callable[[Dataset], Any]


@dataclass(frozen=True)
class Forgery:
    """`found`: with what it is found: `alone`, with the `source`, or with `all` rows rendered again."""

    found: str
    base: str
    forge: Forge


FORGERIES: dict[str, Forgery] = {}


def forgery(found: str, base: str = "plain") -> Callable[[Forge], Forge]:
    def register(forge: Forge) -> Forge:
        FORGERIES[forge.__name__.strip("_")] = Forgery(found, base, forge)
        return forge

    return register


# --- Honest datasets ----------------------------------------------------------------------------------------------


def conversation(number: int, *, flags: bool = False) -> dict[str, Any]:
    """One to three questions; some have a call, most answers have reasoning. `flags`: untrained, truncated, weight."""
    drawn = random.Random(number)

    def words(count: int) -> str:
        return " ".join(drawn.choices(WORDS, k=count))

    messages: list[dict[str, Any]] = []
    if number % 4 == 3:
        messages.append({"role": "system", "content": f"Answer in {words(1)}."})
    for turn in range(2 if number < 4 else drawn.choice([1, 1, 2, 3])):
        messages.append({"role": "user", "content": f"What about the {words(1)} {number:03d}?"})
        if (number + turn) % 2 == 0:
            call = {"id": f"c{turn}", "name": "find", "arguments": json.dumps({"what": words(1)})}
            spoken = {"content": f"I look at {words(2)}."} if number % 3 == 0 else {}
            messages.append({"role": "assistant", "reasoning": f"Look up {words(2)}.", "tool_calls": [call], **spoken})
            messages.append({"role": "tool", "content": f"Found {words(3)}.", "tool_call_id": f"c{turn}"})
        reasoning = {"reasoning": f"It may be {words(2)}."} if (number + turn) % 3 else {}
        messages.append({"role": "assistant", "content": f"It is {words(2)}.", **reasoning})
        if flags and drawn.random() < 0.3:
            messages[-1][drawn.choice(["trained", "truncated"])] = False
        if flags and drawn.random() < 0.3:
            messages[-1]["truncated"] = True
    if all(message.get("trained") is False for message in messages if message["role"] == "assistant"):
        messages[-1].pop("trained")
    whole = {"messages": messages, "tools": [TOOL], **({"weight": 0.5 + number % 3} if flags else {})}
    name = f"c{number}"
    return {"id": name, "messages_json": json.dumps(whole), "metadata_json": json.dumps({"id": name})}


BAD = {"id": "bad", "messages_json": '{"messages": []}', "metadata_json": '{"id": "bad"}'}

BASES: dict[str, tuple[bool, CutRules]] = {
    "plain": (False, CutRules()),
    "flags": (True, CutRules()),
    "keep": (False, CutRules(history="keep")),
    "prompted": (False, CutRules(mask_generation_prompt=True)),
    "as-served": (False, CutRules(call_format="as-served")),
    "last": (False, CutRules(turns="last")),
    "answers": (False, CutRules(train=("final",))),
}
"""Name → whether the source has flags, and the rules of the build."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, asset: Path) -> Callable[[str], tuple[Path, Path]]:
    """Builds the honest dataset of a name, once. Returns its root and its source."""

    @cache
    def source(flags: bool) -> Path:
        rows = [conversation(number, flags=flags) for number in range(160)]
        shards = [[*rows[:60], BAD, *rows[60:80]], rows[80:]]
        return write_conversations(tmp_path_factory.mktemp("source") / "source", shards)

    @cache
    def built(name: str) -> tuple[Path, Path]:
        flags, rules = BASES[name]
        options = BuildOptions(
            source=source(flags),
            out=tmp_path_factory.mktemp("built") / "root",
            rules=rules,
            valid_fraction=VALID_FRACTION,
            workers=1,
            tokenizer=asset,
            max_rejects="100%",
            allow_unknown_sha=True,
            reader="independent",
        )
        result = build(options)
        assert result.report.clean, result.report.findings
        return result.root, source(flags)

    return built


# --- What to forge ------------------------------------------------------------------------------------------------


def documents(dataset: Dataset) -> Iterator[Document]:
    """Those of the first shard of train."""
    yield from dataset.documents["train", 0]


def with_parts(dataset: Dataset, *kinds: str) -> tuple[Document, list[Part]]:
    """The first document that trains a part of each of these kinds, and its parts of the first kind."""
    for document in documents(dataset):
        held = parts(document)
        if set(kinds) <= {part.kind for part in held}:
            return document, [part for part in held if part.kind == kinds[0]]
    raise AssertionError(kinds)


def alone_in_row(dataset: Dataset, several: bool = False) -> list[Document]:
    """The documents of conversations that have one document; with `several` the first ones of those that have more."""
    rows = [document.about["row"] for document in documents(dataset)]
    return [
        document
        for document in documents(dataset)
        if (rows.count(document.about["row"]) > 1) is several and document.about["cut"] == 0
    ]


def taken_out(dataset: Dataset, document: Document) -> None:
    """Removes a document of the first shard of train."""
    kept = [each for each in documents(dataset) if each is not document]
    dataset.documents["train", 0] = kept


def cutting(dataset: Dataset, shard: int = 0) -> dict[str, int]:
    counts: dict[str, int] = dataset.manifest["content"]["shards"][shard]["cutting"]
    return counts


def config(dataset: Dataset) -> dict[str, Any]:
    options: dict[str, Any] = dataset.manifest["content"]["config"]
    return options


# Masks and spans.


@forgery("alone")
def _a_user_text_is_trained(dataset: Dataset) -> None:
    document, (part, *_) = with_parts(dataset, "user")
    label(document, part.body, part.end, 2)


@forgery("alone")
def _a_user_token_is_trained(dataset: Dataset) -> None:
    document, (part, *_) = with_parts(dataset, "user")
    label(document, part.body, part.body + 1, 2)


@forgery("alone")
def _a_system_text_is_trained(dataset: Dataset) -> None:
    document, (part, *_) = with_parts(dataset, "system")
    label(document, part.body, part.end, 2)


@forgery("alone")
def _a_tool_text_is_trained(dataset: Dataset) -> None:
    document, (part, *_) = with_parts(dataset, "tool")
    label(document, part.body, part.end, 3)


@forgery("alone")
def _all_is_trained(dataset: Dataset) -> None:
    document, _ = with_parts(dataset, "tool")
    label(document, 1, document.tokens.size - 1, 2)


@forgery("alone")
def _a_return_is_not_trained(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "final")
    label(document, found[-1].end - 1, found[-1].end, 0)


@forgery("alone")
def _the_end_of_a_call_is_not_trained(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "call", "tool")
    label(document, found[-1].end - 1, found[-1].end, 0)


@forgery("alone")
def _the_end_of_reasoning_is_not_trained(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "analysis")
    label(document, found[-1].end - 1, found[-1].end, 0)


@forgery("alone")
def _a_header_is_not_trained(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "final")
    label(document, found[-1].begin, found[-1].body, 0)


@forgery("alone", "prompted")
def _a_generation_prompt_is_trained(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "analysis")
    label(document, found[-1].begin, found[-1].begin + 2, 1)


@forgery("alone")
def _an_answer_is_reasoning(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "final")
    label(document, found[-1].begin, found[-1].end, 1)


@forgery("alone")
def _a_call_is_an_answer(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "call")
    label(document, found[-1].begin, found[-1].end, 2)


@forgery("alone")
def _reasoning_and_answers_are_exchanged(dataset: Dataset) -> None:
    for of_split in dataset.documents.values():
        for document in of_split:
            document.span = np.array([0, 2, 1, 3], dtype=np.uint8)[document.span]


@forgery("alone")
def _an_answer_is_not_trained(dataset: Dataset) -> None:
    """The reasoning before it is, so that the run is counted."""
    document, found = with_parts(dataset, "final", "analysis")
    label(document, found[-1].begin, found[-1].end, 0)


@forgery("source", "flags")
def _an_answer_is_not_trained_where_the_source_marks_some(dataset: Dataset) -> None:
    document = next(
        each for each in documents(dataset) if {part.span for part in parts(each) if part.kind == "analysis"} == {1}
    )
    part = next(part for part in parts(document) if part.span == 1)
    label(document, part.begin, part.end, 0)


@forgery("alone")
def _the_first_of_several_runs_is_not_trained(dataset: Dataset) -> None:
    document = next(each for each in documents(dataset) if each.about["runs"] > 1)
    held = parts(document)
    first = next(at for at, part in enumerate(held) if part.span)
    for part in held[first : next(at for at in range(first, len(held)) if held[at].kind == "tool")]:
        label(document, part.begin, part.end, 0)
    document.about["runs"] -= 1
    cutting(dataset)["runs"] -= 1


@forgery("alone")
def _the_mask_is_one_place_late(dataset: Dataset) -> None:
    document, _ = with_parts(dataset, "final")
    for name in ("span", "lossmask"):
        array = getattr(document, name)
        array[1:-1] = array[:-2].copy()


@forgery("source", "flags")
def _a_whole_answer_is_truncated(dataset: Dataset) -> None:
    document = next(each for each in documents(dataset) if each.span[-3] == 2)  # the label of <|return|>
    label(document, document.tokens.size - 2, document.tokens.size - 1, 0)
    cutting(dataset)["truncated_messages"] += 1


@forgery("source", "flags")
def _an_answer_is_truncated_that_is_not_counted(dataset: Dataset) -> None:
    cutting(dataset)["truncated_messages"] += 1


@forgery("alone")
def _labels_are_not_shifted(dataset: Dataset) -> None:
    for document in documents(dataset):
        document.span = np.append(np.uint8(0), document.span[:-1])
        document.lossmask = np.append(np.uint8(0), document.lossmask[:-1])


@forgery("alone")
def _the_last_place_has_a_label(dataset: Dataset) -> None:
    document = next(documents(dataset))
    document.span[-1] = document.lossmask[-1] = 1


@forgery("alone")
def _a_mask_is_not_that_of_the_span(dataset: Dataset) -> None:
    document = next(documents(dataset))
    document.lossmask[3] = 1


@forgery("alone")
def _a_mask_is_two(dataset: Dataset) -> None:
    document = next(documents(dataset))
    document.lossmask[document.lossmask > 0] = 2


@forgery("alone")
def _nothing_of_a_document_is_trained(dataset: Dataset) -> None:
    document = alone_in_row(dataset)[0]
    document.span[:] = document.lossmask[:] = 0
    cutting(dataset)["runs"] -= document.about["runs"]
    document.about["runs"] = 0


# Tokens.


@forgery("alone")
def _a_token_is_of_no_vocabulary(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "final")
    document.tokens[found[-1].body] = 201_088


@forgery("alone")
def _two_documents_are_one(dataset: Dataset) -> None:
    first, second = list(documents(dataset))[:2]
    for name in ("tokens", "span", "lossmask"):
        setattr(first, name, np.concatenate([getattr(first, name)[:-1], getattr(second, name)]))
    first.about["runs"] += second.about["runs"]
    taken_out(dataset, second)
    cutting(dataset)["documents"] -= 1


@forgery("alone")
def _an_answer_of_another_channel(dataset: Dataset) -> None:
    """The header of the last answer says `analysis`, and so does its span."""
    document, found = with_parts(dataset, "final")
    part = found[-1]
    document.tokens[part.body - 2] = 35644
    label(document, part.begin, part.end, 1)


@forgery("alone")
def _an_answer_is_given_twice(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "final")
    part = found[-1]
    replaced(document, part.begin, part.begin, document.tokens[part.begin : part.end].tolist())
    label(document, part.begin, part.end, 2)
    document.tokens[part.end - 1] = END


@forgery("alone")
def _a_return_is_an_end(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "final")
    document.tokens[found[-1].end - 1] = END


@forgery("alone")
def _a_return_is_a_call(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "final")
    document.tokens[found[-1].end - 1] = CALL


@forgery("alone")
def _a_call_ends_in_end(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "call")
    document.tokens[found[-1].end - 1] = END


@forgery("alone")
def _reasoning_ends_in_return(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "analysis", "final")
    document.tokens[found[-1].end - 1] = RETURN


@forgery("alone")
def _a_question_ends_in_return(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "user")
    document.tokens[found[0].end - 1] = RETURN


@forgery("alone")
def _an_eod_is_in_a_text(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "user")
    document.tokens[found[0].body + 1] = EOD


@forgery("alone")
def _an_end_is_in_a_text(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "user")
    document.tokens[found[0].body + 1] = END


@forgery("alone")
def _a_constrain_is_in_an_answer(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "final")
    document.tokens[found[-1].body + 1] = CONSTRAIN


@forgery("alone")
def _a_message_is_in_a_message(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "user")
    document.tokens[found[0].body + 1] = MESSAGE


@forgery("alone")
def _a_reserved_token_is_in_an_answer(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "final")
    document.tokens[found[-1].body + 1] = 200013


@forgery("alone")
def _a_question_is_left_out_between_answers(dataset: Dataset) -> None:
    document = next(each for each in documents(dataset) if each.about["cut"] > 0)
    part = [part for part in parts(document) if part.kind == "user"][-1]
    replaced(document, part.begin, part.end, [])


@forgery("alone")
def _a_result_stands_before_its_call(dataset: Dataset) -> None:
    document, (result, *_) = with_parts(dataset, "tool", "call")
    call = next(part for part in parts(document) if part.end == result.begin)
    moved = np.r_[0 : call.begin, result.begin : result.end, call.begin : call.end, result.end : document.tokens.size]
    spans = np.r_[0, document.span[:-1]][moved]
    document.tokens, document.span = document.tokens[moved], np.r_[spans[1:], 0].astype(np.uint8)
    document.lossmask = (document.span > 0).astype(np.uint8)


@forgery("alone")
def _the_system_message_is_left_out(dataset: Dataset) -> None:
    document, (part, *_) = with_parts(dataset, "system")
    replaced(document, part.begin, part.end, [])


@forgery("alone")
def _the_last_answer_is_cut_off(dataset: Dataset) -> None:
    """The document ends after a question."""
    document = next(each for each in documents(dataset) if each.about["runs"] == 2)
    last = [part for part in parts(document) if part.kind == "tool"][-1]
    replaced(document, last.end, document.tokens.size - 1, [])
    document.about["runs"] = 1
    cutting(dataset)["runs"] -= 1


@forgery("alone")
def _a_question_is_other_than_in_the_next_document(dataset: Dataset) -> None:
    document = alone_in_row(dataset, several=True)[0]
    part = next(part for part in parts(document) if part.kind == "user")
    document.tokens[part.body + 1] += 1


@forgery("alone")
def _an_answer_is_other_than_in_the_next_document(dataset: Dataset) -> None:
    document = alone_in_row(dataset, several=True)[0]
    part = parts(document)[-1]
    document.tokens[part.body + 1] += 1


@forgery("alone")
def _all_documents_are_copies(dataset: Dataset) -> None:
    first, *others = documents(dataset)
    for other in others:
        other.tokens, other.lossmask, other.span = first.tokens.copy(), first.lossmask.copy(), first.span.copy()


@forgery("source")
def _documents_of_one_run_are_copies(dataset: Dataset) -> None:
    first, *others = [each for each in alone_in_row(dataset) if each.about["runs"] == 1]
    assert len(others) > 0.05 * len(dataset.documents["train", 0])
    for other in others:
        other.tokens, other.lossmask, other.span = first.tokens.copy(), first.lossmask.copy(), first.span.copy()


@forgery("source")
def _a_trained_token_is_another(dataset: Dataset) -> None:
    document = alone_in_row(dataset)[3]
    document.tokens[parts(document)[-1].body + 1] += 1


@forgery("source")
def _a_question_has_another_token(dataset: Dataset) -> None:
    document = alone_in_row(dataset)[3]
    document.tokens[next(part for part in parts(document) if part.kind == "user").body + 1] += 1


@forgery("source")
def _the_system_text_has_another_token(dataset: Dataset) -> None:
    document = alone_in_row(dataset)[3]
    document.tokens[next(part for part in parts(document) if part.kind == "system").body + 1] += 1


@forgery("source")
def _a_definition_of_a_tool_has_another_token(dataset: Dataset) -> None:
    document = alone_in_row(dataset)[3]
    document.tokens[next(part for part in parts(document) if part.kind == "developer").body + 9] += 1


@forgery("source")
def _an_answer_is_cut(dataset: Dataset) -> None:
    document = alone_in_row(dataset)[3]
    part = parts(document)[-1]
    replaced(document, part.end - 3, part.end - 1, [])


@forgery("source")
def _an_answer_is_empty(dataset: Dataset) -> None:
    document = alone_in_row(dataset)[3]
    part = parts(document)[-1]
    replaced(document, part.body, part.end - 1, [])


@forgery("source")
def _the_called_tool_is_another(dataset: Dataset) -> None:
    document = next(each for each in alone_in_row(dataset) if any(part.kind == "call" for part in parts(each)))
    part = next(part for part in parts(document) if part.kind == "call")
    named = part.begin + 2 + next(at for at, token in enumerate(document.tokens[part.begin + 2 :]) if token > 5000)
    document.tokens[named] += 1


@forgery("source")
def _two_documents_are_exchanged(dataset: Dataset) -> None:
    first, second = [each for each in alone_in_row(dataset) if each.about["runs"] == 1][:2]
    for name in ("tokens", "span", "lossmask"):
        one, other = getattr(first, name), getattr(second, name)
        setattr(first, name, other)
        setattr(second, name, one)


@forgery("source")
def _reasoning_is_left_out(dataset: Dataset) -> None:
    document = next(
        each
        for each in alone_in_row(dataset)
        if each.about["runs"] == 1 and [part.kind for part in parts(each)][-2:] == ["analysis", "final"]
    )
    part = parts(document)[-2]
    replaced(document, part.begin, part.end, [])


@forgery("all")
def _a_word_is_of_other_tokens(dataset: Dataset) -> None:
    """`It`, of one token, as `I` and `t`: the text is the same."""
    document = alone_in_row(dataset)[0]
    part = parts(document)[-1]
    assert document.tokens[part.body] == IT
    replaced(document, part.body, part.body + 1, [40, 83])


# Rows.


@forgery("alone")
def _runs_are_more(dataset: Dataset) -> None:
    next(documents(dataset)).about["runs"] += 1


@forgery("alone")
def _a_cut_is_another(dataset: Dataset) -> None:
    document = alone_in_row(dataset)[0]
    document.about.update(cut=2, id=f"{document.about['conversation']}#2")


@forgery("alone", "flags")
def _a_weight_is_other_than_in_the_next_document(dataset: Dataset) -> None:
    alone_in_row(dataset, several=True)[0].about["weight"] = 4.0


@forgery("source")
def _a_weight_is_another(dataset: Dataset) -> None:
    alone_in_row(dataset)[0].about["weight"] = 4.0


@forgery("alone")
def _an_id_is_not_of_its_conversation(dataset: Dataset) -> None:
    alone_in_row(dataset)[0].about["id"] = "c7#0"


@forgery("source")
def _ids_are_exchanged(dataset: Dataset) -> None:
    first, second = alone_in_row(dataset)[:2]
    for name in ("id", "conversation"):
        first.about[name], second.about[name] = second.about[name], first.about[name]


@forgery("alone")
def _a_document_is_in_the_other_split(dataset: Dataset) -> None:
    document = alone_in_row(dataset)[0]
    taken_out(dataset, document)
    dataset.documents["valid", 0].append(document)
    dataset.documents["valid", 0].sort(key=lambda each: (each.about["row"], each.about["cut"]))


@forgery("source")
def _the_last_document_of_a_conversation_is_left_out(dataset: Dataset) -> None:
    rows = [document.about["row"] for document in documents(dataset)]
    at = next(at for at in range(1, len(rows)) if rows[at] == rows[at - 1] != rows[at + 1])
    gone = dataset.documents["train", 0].pop(at)
    cutting(dataset)["documents"] -= 1
    cutting(dataset)["runs"] -= gone.about["runs"]


@forgery("alone")
def _the_first_document_of_a_conversation_is_left_out(dataset: Dataset) -> None:
    gone = alone_in_row(dataset, several=True)[0]
    taken_out(dataset, gone)
    cutting(dataset)["documents"] -= 1
    cutting(dataset)["runs"] -= gone.about["runs"]


@forgery("source")
def _a_good_conversation_is_rejected(dataset: Dataset) -> None:
    gone = alone_in_row(dataset)[0]
    taken_out(dataset, gone)
    row = {"row": gone.about["row"], "id": gone.about["conversation"], "shard": 0}
    dataset.rejects[0].append({**row, "reason": "no_messages", "detail": "the list of messages is empty"})
    dataset.rejects[0].sort(key=lambda line: int(line["row"]))
    for name, lost in {"conversations": 1, "documents": 1, "runs": gone.about["runs"]}.items():
        cutting(dataset)[name] -= lost


@forgery("source")
def _a_reason_is_another(dataset: Dataset) -> None:
    dataset.rejects[0][0]["reason"] = "role_unknown"


@forgery("alone")
def _documents_are_in_another_order(dataset: Dataset) -> None:
    dataset.documents["train", 0].reverse()


@forgery("alone")
def _a_conversation_is_twice(dataset: Dataset) -> None:
    """In place of its neighbour."""
    first, second = alone_in_row(dataset)[:2]
    row = second.about["row"]
    second.about = {**first.about, "row": row}
    second.tokens, second.span, second.lossmask = first.tokens, first.span, first.lossmask


@forgery("alone")
def _a_conversation_is_left_out(dataset: Dataset) -> None:
    gone = alone_in_row(dataset)[0]
    taken_out(dataset, gone)
    for name, lost in {"conversations": 1, "documents": 1, "runs": gone.about["runs"]}.items():
        cutting(dataset)[name] -= lost
    dataset.manifest["content"]["shards"][0]["rows_read"] -= 1


@forgery("alone")
def _a_bad_conversation_is_forgotten(dataset: Dataset) -> None:
    dataset.rejects[0].clear()
    dataset.manifest["content"]["shards"][0]["rows_read"] -= 1


@forgery("alone")
def _a_refusal_is_of_another_row(dataset: Dataset) -> None:
    dataset.rejects[0][0]["row"] -= 1


# The manifest.


@forgery("alone")
def _the_names_of_spans_are_exchanged(dataset: Dataset) -> None:
    names = dataset.manifest["content"]["span_names"]
    names[1], names[2] = names[2], names[1]
    dataset.span_names = list(names)


@forgery("alone")
def _the_share_of_valid_is_another(dataset: Dataset) -> None:
    fraction = 0.4
    config(dataset)["valid_fraction"] = fraction
    dataset.manifest["content"]["split"].update(valid_fraction=fraction, threshold=str(2 * 2**64 // 5))


@forgery("alone")
def _there_was_a_cap(dataset: Dataset) -> None:
    config(dataset)["caps"]["max_rows"] = 10


@forgery("alone")
def _less_is_to_be_trained(dataset: Dataset) -> None:
    config(dataset)["train"] = ["final"]


@forgery("alone", "answers")
def _more_is_to_be_trained(dataset: Dataset) -> None:
    config(dataset)["train"] = ["analysis", "final"]


@forgery("alone")
def _the_history_is_kept(dataset: Dataset) -> None:
    config(dataset)["history"] = "keep"


@forgery("alone", "keep")
def _the_history_is_served(dataset: Dataset) -> None:
    config(dataset)["history"] = "serve"


@forgery("alone")
def _the_last_turns_are_trained(dataset: Dataset) -> None:
    config(dataset)["turns"] = "last"


@forgery("alone", "last")
def _all_turns_are_trained(dataset: Dataset) -> None:
    config(dataset)["turns"] = "all"


@forgery("alone")
def _runs_have_a_document_each(dataset: Dataset) -> None:
    del config(dataset)["merge"]


@forgery("alone")
def _calls_are_json(dataset: Dataset) -> None:
    config(dataset)["call_format"] = "json"


@forgery("alone", "as-served")
def _calls_are_constrained(dataset: Dataset) -> None:
    del config(dataset)["call_format"]


@forgery("alone")
def _generation_prompts_are_masked(dataset: Dataset) -> None:
    config(dataset)["mask_generation_prompt"] = True


@forgery("alone", "prompted")
def _generation_prompts_are_not_masked(dataset: Dataset) -> None:
    del config(dataset)["mask_generation_prompt"]


@forgery("alone")
def _runs_are_counted_that_are_not_there(dataset: Dataset) -> None:
    cutting(dataset)["runs"] += 1


@forgery("source")
def _messages_are_left_out_that_are_not(dataset: Dataset) -> None:
    cutting(dataset)["left_out_messages"] += 3


@forgery("source")
def _messages_are_untrained_that_are_trained(dataset: Dataset) -> None:
    cutting(dataset)["untrained_messages"] += 3


@forgery("source", "flags")
def _fewer_messages_are_untrained(dataset: Dataset) -> None:
    cutting(dataset)["untrained_messages"] -= 1


@forgery("source", "as-served")
def _fewer_documents_are_divided(dataset: Dataset) -> None:
    cutting(dataset)["divided_documents"] -= 1


@forgery("source", "as-served")
def _divided_documents_have_fewer_tokens(dataset: Dataset) -> None:
    cutting(dataset)["divided_tokens"] -= 1


@forgery("alone")
def _more_is_audited_than_there_is(dataset: Dataset) -> None:
    dataset.manifest["content"]["renderer"]["audited_rows"] = 10**6


@forgery("alone")
def _the_renderer_is_another(dataset: Dataset) -> None:
    dataset.manifest["content"]["renderer"]["name"] = "slow"


@forgery("alone")
def _the_input_has_more_rows(dataset: Dataset) -> None:
    dataset.manifest["content"]["input"]["shards"][0]["rows"] += 1


@forgery("alone")
def _the_tokenizer_is_another(dataset: Dataset) -> None:
    dataset.manifest["content"]["tokenizer"]["sha256"] = "ab" * 32


@forgery("alone")
def _a_file_is_listed_that_no_such_dataset_has(dataset: Dataset) -> None:
    (dataset.root / "tokenizer.json").write_text("{}")
    dataset.manifest["content"]["files"] = [listed(dataset.root, "tokenizer.json")]


@forgery("source")
def _the_input_is_another(dataset: Dataset) -> None:
    dataset.manifest["content"]["input"]["manifest_sha256"] = "ab" * 32


# --- The tests ----------------------------------------------------------------------------------------------------

GIVEN: dict[str, dict[str, Any]] = {"alone": {}, "source": {"deep": 0}, "all": {"deep": 10**6}}


def found(root: Path, source: Path, level: str) -> spanloom.Report:
    given = {} if level == "alone" else {"source": source}
    return spanloom.validate(root, reader="independent", **given, **GIVEN[level])


@pytest.mark.parametrize("base", BASES)
def test_an_honest_dataset_written_again_is_clean(base: str, made: Any, tmp_path: Path) -> None:
    root, source = made(base)
    shutil.copytree(root, tmp_path / "root")
    forged(tmp_path / "root", lambda _: None)
    for level in GIVEN:
        report = found(tmp_path / "root", source, level)
        assert not report.findings


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found(name: str, made: Any, tmp_path: Path) -> None:
    forgery = FORGERIES[name]
    root, source = made(forgery.base)
    shutil.copytree(root, tmp_path / "root")
    forged(tmp_path / "root", forgery.forge)
    assert not found(tmp_path / "root", source, forgery.found).clean


def test_a_file_that_is_a_link_is_found(made: Any, tmp_path: Path) -> None:
    root, source = made("plain")
    shutil.copytree(root, tmp_path / "root")
    path = tmp_path / "root/train/shard_00_tokens.bin"
    path.rename(tmp_path / "elsewhere.bin")
    path.symlink_to(tmp_path / "elsewhere.bin")
    assert not found(tmp_path / "root", source, "alone").clean


def test_the_shares_of_what_is_found() -> None:
    """What docs/reliability.md says."""
    levels = Counter(forgery.found for forgery in FORGERIES.values())
    assert levels["alone"] >= 0.75 * levels.total()
    assert levels["alone"] + levels["source"] >= 0.85 * levels.total()
