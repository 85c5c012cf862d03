"""Forgeries of masks and spans."""

import numpy as np

from tools.corruption.dataset import Dataset
from tools.corruption.harmony.kinds import alone_in_row, cutting, documents, forgery, on_parts, spanned, with_parts
from tools.corruption.harmony.messages import label, parts

on_parts(
    {
        "a_return_is_not_trained": ("alone", "final", spanned("end-1", "end", 0)),
        "the_end_of_a_call_is_not_trained": ("alone", "call tool", spanned("end-1", "end", 0)),
        "the_end_of_reasoning_is_not_trained": ("alone", "analysis", spanned("end-1", "end", 0)),
        "a_header_is_not_trained": ("alone", "final", spanned("begin", "body", 0)),
        "an_answer_is_reasoning": ("alone", "final", spanned("begin", "end", 1)),
        "a_call_is_an_answer": ("alone", "call", spanned("begin", "end", 2)),
    },
)

on_parts(
    {
        "a_user_text_is_trained": ("alone", "user", spanned("body", "end", 2)),
        "a_user_token_is_trained": ("alone", "user", spanned("body", "body+1", 2)),
        "a_system_text_is_trained": ("alone", "system", spanned("body", "end", 2)),
        "a_tool_text_is_trained": ("alone", "tool", spanned("body", "end", 3)),
    },
    at=0,
)


@forgery("alone")
def _all_is_trained(dataset: Dataset) -> None:
    document, _ = with_parts(dataset, "tool")
    label(document, 1, document.tokens.size - 1, 2)


@forgery("alone", "prompted")
def _a_generation_prompt_is_trained(dataset: Dataset) -> None:
    document, found = with_parts(dataset, "analysis")
    label(document, found[-1].begin, found[-1].begin + 2, 1)


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
