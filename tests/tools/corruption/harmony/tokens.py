"""Forgeries of tokens; labels and rows follow."""

import numpy as np

from tools.corruption.dataset import Dataset
from tools.corruption.harmony.kinds import (
    alone_in_row,
    cutting,
    documents,
    forgery,
    left_out,
    on_parts,
    taken_out,
    token,
    with_parts,
)
from tools.corruption.harmony.messages import CALL, CONSTRAIN, END, EOD, MESSAGE, RETURN, label, parts, replaced

IT = 3206
"""The token of `It`."""


on_parts(
    {
        "a_token_is_of_no_vocabulary": ("alone", "final", token("body", 201_088)),
        "a_return_is_an_end": ("alone", "final", token("end-1", END)),
        "a_return_is_a_call": ("alone", "final", token("end-1", CALL)),
        "a_call_ends_in_end": ("alone", "call", token("end-1", END)),
        "reasoning_ends_in_return": ("alone", "analysis final", token("end-1", RETURN)),
        "a_constrain_is_in_an_answer": ("alone", "final", token("body+1", CONSTRAIN)),
        "a_reserved_token_is_in_an_answer": ("alone", "final", token("body+1", 200013)),
    },
)

on_parts(
    {
        "a_question_ends_in_return": ("alone", "user", token("end-1", RETURN)),
        "an_eod_is_in_a_text": ("alone", "user", token("body+1", EOD)),
        "an_end_is_in_a_text": ("alone", "user", token("body+1", END)),
        "a_message_is_in_a_message": ("alone", "user", token("body+1", MESSAGE)),
        "the_system_message_is_left_out": ("alone", "system", left_out("begin", "end")),
    },
    at=0,
)


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
