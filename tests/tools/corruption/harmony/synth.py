"""Forgeries of SYNTH KD: those of its documents, rows and manifest that `corruption.forgeries` does not have."""

from functools import partial

from tools.corruption.dataset import Dataset, listed
from tools.corruption.harmony.kinds import documents, forgery, left_out, on_parts, spanned, token, with_parts
from tools.corruption.harmony.messages import CALL, END, EOD, MESSAGE, RETURN, parts, replaced
from tools.corruption.harmony.tokens import IT

synth = partial(forgery, base="synth")


on_parts(
    {
        "synth_question_is_trained": ("alone", "user", spanned("body", "end", 2)),
        "synth_system_text_is_trained": ("alone", "system", spanned("body", "end", 1)),
        "synth_return_is_not_trained": ("alone", "final", spanned("end-1", "end", 0)),
        "synth_header_is_not_trained": ("alone", "analysis", spanned("begin", "body", 0)),
        "synth_return_is_an_end": ("alone", "final", token("end-1", END)),
        "synth_reasoning_ends_in_return": ("alone", "analysis", token("end-1", RETURN)),
        "synth_question_ends_in_call": ("alone", "user", token("end-1", CALL)),
        "synth_message_is_in_a_text": ("alone", "user", token("body+1", MESSAGE)),
        "synth_end_is_in_an_answer": ("alone", "final", token("body+2", END)),
        "synth_eod_is_in_an_answer": ("alone", "final", token("body+2", EOD)),
        "synth_reserved_token_is_in_reasoning": ("alone", "analysis", token("body+2", 200013)),
        "synth_answer_is_reasoning": ("alone", "final", spanned("begin", "end", 1)),
        "synth_has_calls": ("alone", "analysis", token("body-2", 12606)),
        "synth_question_has_another_token": ("source", "user", token("body+1")),
        "synth_system_text_has_another_token": ("source", "system", token("body+1")),
        "synth_answer_is_cut": ("source", "final", left_out("end-3", "end-1")),
        "synth_reasoning_is_left_out": ("source", "analysis", left_out("begin", "end")),
    },
    at=0,
    base="synth",
)


@synth("alone")
def _synth_has_a_file_that_no_such_dataset_has(dataset: Dataset) -> None:
    (dataset.root / "tokenizer.json").write_text("{}")
    dataset.manifest["content"]["files"] = [listed(dataset.root, "tokenizer.json")]


@synth("source")
def _synth_answer_has_another_token(dataset: Dataset) -> None:
    document = list(documents(dataset))[7]
    document.tokens[parts(document)[-1].body + 1] += 1


@synth("source")
def _synth_documents_are_exchanged(dataset: Dataset) -> None:
    first, second = list(documents(dataset))[:2]
    first.about, second.about = second.about, first.about
    dataset.documents["train", 0][:2] = second, first


@synth("source")
def _synth_documents_are_copies(dataset: Dataset) -> None:
    first, *others = documents(dataset)
    for other in others:
        other.tokens, other.lossmask, other.span = first.tokens.copy(), first.lossmask.copy(), first.span.copy()


@synth("source")
def _synth_reasoning_and_answer_are_exchanged(dataset: Dataset) -> None:
    """The texts: headers, ends and spans stay."""
    document, (part, *_) = with_parts(dataset, "analysis")
    answer = parts(document)[-1]
    texts = [document.tokens[each.body : each.end - 1].tolist() for each in (part, answer)]
    replaced(document, answer.body, answer.end - 1, texts[0])
    replaced(document, part.body, part.end - 1, texts[1])


@synth("source")
def _synth_language_is_another(dataset: Dataset) -> None:
    next(documents(dataset)).about["language"] = "xx"


@synth("all")
def _synth_word_is_of_other_tokens(dataset: Dataset) -> None:
    """`It`, of one token, as `I` and `t`: the text is the same."""
    document, (part, *_) = with_parts(dataset, "final")
    assert document.tokens[part.body] == IT
    replaced(document, part.body, part.body + 1, [40, 83])
