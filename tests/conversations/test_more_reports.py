"""More records in shapes that people reported: each is understood, refused or counted.

In: files of `tests/cases/reports/more`. Their right values are those of the public reports that they follow: what a
record excludes is not trained, what an answer needs is not metadata, and no remedy loses either.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from spanloom.conversations.conversation import Conversation
from spanloom.conversations.outcomes import LeftAway, Rejected
from spanloom.families.harmony.convert.chat import conversations, open_chat
from spanloom.families.harmony.convert.conversion import ChatConversion, Converted
from support.cases import cases_of

MORE = cases_of("reports") / "more"
USER = {"role": "user", "content": "Q"}
ANSWER = {"role": "assistant", "content": "A"}


def case(name: str) -> Path:
    return MORE / f"{name}.jsonl"


def written(tmp_path: Path, record: Any) -> Path:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(record, ensure_ascii=False) + "\n", "utf-8")
    return path


def outcomes(file: Path, **options: Any) -> list[Any]:
    conversion = ChatConversion(**options)
    return list(conversations(open_chat([file], conversion), conversion))


def read(file: Path, **options: Any) -> list[Conversation]:
    done = outcomes(file, **options)
    assert all(isinstance(outcome, Converted) for outcome in done), done
    return [outcome.conversation for outcome in done]


def refused(file: Path, **options: Any) -> list[tuple[str, str]]:
    """Reason and remedy of each record; all are refused."""
    done = outcomes(file, **options)
    assert all(isinstance(outcome, Rejected) for outcome in done), done
    return [(outcome.reason, outcome.remedy or "") for outcome in done]


def the_refusal(name: str) -> tuple[str, str]:
    """Reason and remedy of the one record of a file, which is refused."""
    (refusal,) = refused(case(name))
    return refusal


# --- Flags -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["rec_mask", "rec_ignore_loss", "rec_loss_masks_pl", "rec_masks_pl", "rec_train_turns"]
)
def test_a_flag_of_a_record_is_no_metadata(name: str) -> None:
    reason, remedy = the_refusal(name)
    assert reason == "label_unclear"
    assert "--metadata" not in remedy
    assert "--drop" not in remedy


@pytest.mark.parametrize("beside", [{"attention_mask": [1, 0]}, {"mask": False}, {"train": True}, {"masks": "text"}])
def test_masks_of_tokens_and_flags_that_exclude_nothing_are_metadata(tmp_path: Path, beside: dict[str, object]) -> None:
    assert len(read(written(tmp_path, {"messages": [USER, ANSWER], **beside}))) == 1


@pytest.mark.parametrize("name", ["msg_skip", "msg_enabled"])
def test_no_remedy_drops_what_may_be_a_flag(name: str) -> None:
    reason, remedy = the_refusal(name)
    assert reason == "weight_zero"
    assert "--drop" not in remedy
    assert "--map masked=" in remedy


@pytest.mark.parametrize("name", ["kto_undesirable", "kto_rejected"])
def test_a_label_in_words_leaves_the_record_out(name: str) -> None:
    assert [type(done) for done in outcomes(case(name))] == [LeftAway]


def test_a_label_of_minus_one_is_asked_about() -> None:
    assert the_refusal("kto_m1")[0] == "label_unclear"
    assert [type(done) for done in outcomes(case("kto_m1"), maps=("preferred=label",))] == [LeftAway]


# --- Cut-off answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fr_mcwe", "fr_trunc", "fr_rec_trunc", "fr_verif", "fr_list", "prefill"])
def test_an_answer_that_is_not_whole_is_truncated(name: str) -> None:
    (conversation,) = read(case(name))
    assert [message.truncated for message in conversation.messages] == [False, True]


def test_a_message_without_its_end_of_turn_is_truncated() -> None:
    (conversation,) = read(case("msg_eot"))
    assert [message.truncated for message in conversation.messages] == [False, True, False, False]


@pytest.mark.parametrize(
    "beside", [{"truncated": False}, {"finish_reasons": ["length", "stop"]}, {"prefix": "Q"}, {"finish_reasons": None}]
)
def test_a_whole_answer_is_not_truncated(tmp_path: Path, beside: dict[str, object]) -> None:
    (conversation,) = read(written(tmp_path, {"messages": [USER, ANSWER], **beside}))
    assert not conversation.messages[-1].truncated


# --- Columns beside --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tools_camel", "tools_toolspec", "tools_info"])
def test_definitions_of_tools_under_any_name_are_asked_about(name: str) -> None:
    reason, remedy = the_refusal(name)
    assert (reason, remedy.split()[0]) == ("tools_invalid", "--map")
    key = remedy.split()[1]
    (conversation,) = read(case(name), maps=(key,))
    assert [tool["name"] for tool in conversation.tools] == ["lookup"]


@pytest.mark.parametrize("name", ["analysis_col", "plan_col", "thoughts_list"])
def test_reasoning_under_other_names_is_asked_about(name: str) -> None:
    reason, remedy = the_refusal(name)
    assert reason == "answer_beside"
    for option in ("reasoning=analysis", "reasoning=internal_monologue", "reasoning=thoughts"):
        if f"--map {option} " in remedy:
            assert read(case(name), maps=(option,))[0].messages[-1].reasoning


def test_attached_media_are_no_metadata() -> None:
    assert the_refusal("img_media")[0] == "media"


def test_each_case_has_one_record() -> None:
    files = sorted(MORE.glob("*.jsonl"))
    assert files
    assert all(len(file.read_text("utf-8").splitlines()) == 1 for file in files)
