"""A verdict on a record or a message, which says that nothing of it is to be trained: refused, or read by an option."""

from typing import Any

import pytest

from spanloom.conversations.turns import RecordLeftOutError, Refusal
from support.read_chats import ANSWER, TALK, USER, read, refused, texts


@pytest.mark.parametrize("record", [{"messages": [USER, ANSWER]}, {"prompt": "Q", "response": "A"}])
@pytest.mark.parametrize("key", ["rejected", "skip", "excluded", "is_discarded", "deleted"])
def test_a_record_that_is_set_aside_is_not_trained(record: Any, key: str) -> None:
    verdicts: list[Any] = [True, "true", *([] if key == "rejected" else [1])]  # a number there is no verdict
    for value in verdicts:
        reason, remedy = refused({**record, key: value})
        assert reason is Refusal.LABEL_UNCLEAR
        assert remedy == f"--max-rejects 100% sets such records aside, --metadata {key} trains them"
        assert texts(read({**record, key: value}, metadata=(key,))) == TALK
    for value in [False, None, 0.5, "no reason"]:
        if key != "rejected" or not isinstance(value, str):  # a rejected answer
            assert texts(read({**record, key: value})) == TALK


@pytest.mark.parametrize(
    "key",
    [
        *("chosen", "accepted", "is_preferred", "approved", "is_correct"),
        *("correct", "passed", "resolved", "success", "is_safe"),
    ],
)
@pytest.mark.parametrize("value", [False, "false", 0, 0.0])
def test_a_record_that_was_not_accepted_is_not_trained(key: str, value: Any) -> None:
    record = {"prompt": "Q", "response": "A", key: value}
    reason, remedy = refused(record)
    assert reason is Refusal.LABEL_UNCLEAR
    assert remedy == f"--map preferred={key} leaves such records out, --metadata {key} trains them"
    with pytest.raises(RecordLeftOutError):
        read(record, maps=(f"preferred={key}",))
    assert texts(read(record, metadata=(key,))) == texts(read({**record, key: True})) == TALK
    assert texts(read({**record, key: 1})) == texts(read({**record, key: 0.5})) == TALK


@pytest.mark.parametrize("key", ["status", "verdict", "grade", "judgment", "outcome", "exit_status", "is_correct"])
@pytest.mark.parametrize("value", ["failed", "INCORRECT", "Timed out", "thumbs-down"])
def test_a_record_that_failed_in_words_is_not_trained(key: str, value: str) -> None:
    record = {"messages": [USER, ANSWER], key: value}
    reason, remedy = refused(record)
    assert reason is Refusal.LABEL_UNCLEAR
    assert remedy == f"--map preferred={key} leaves such records out, --metadata {key} trains them"
    with pytest.raises(RecordLeftOutError):
        read(record, maps=(f"preferred={key}",))
    assert texts(read(record, metadata=(key,))) == TALK
    assert texts(read({**record, key: "Completed"}, maps=(f"preferred={key}",))) == TALK
    for said in ["completed", "B", "the student failed", 0.2, None]:
        assert texts(read({**record, key: said})) == TALK


def test_a_verdict_within_an_object_is_not_trained() -> None:
    record = {"messages": [USER, ANSWER]}
    for key, value in [("feedback", {"rating": "dislike"}), ("evaluation", {"passed": False, "score": 0.1})]:
        reason, remedy = refused({**record, key: value})
        assert reason is Refusal.LABEL_UNCLEAR
        assert remedy == f"--max-rejects 100% sets such records aside, --metadata {key} trains them"
        assert texts(read({**record, key: value}, metadata=(key,))) == TALK
    assert texts(read({**record, "feedback": {"rating": "like"}, "evaluation": {"passed": True}})) == TALK


@pytest.mark.parametrize(
    "beside",
    [
        {"verdict": False},
        {"judge": "No"},
        {"evaluation": "FALSE"},
        {"status": 429},
        {"status_code": "ERROR"},
        {"level": "ERROR"},
        {"finalStatus": "FAILED!"},
        {"outcome": "Failed: timeout"},
        {"review_status": "rejected"},
        {"user_feedback": "👎"},
        {"isCorrect": False},
        {"Is Correct": "No"},
        {"tests_passed": "0.0"},
        {"is_verified": False},
        {"failed": True},
        {"hasError": True},
        {"api_error": "429"},
        {"metadata": {"is_correct": False}},
        {"test_result": {"report": {"resolved": False}}},
        {"evaluation": [{"passed": False}]},
    ],
    ids=str,
)
def test_other_names_and_words_of_verdicts_are_known(beside: dict[str, Any]) -> None:
    assert refused({"messages": [USER, ANSWER], **beside})[0] is Refusal.LABEL_UNCLEAR
    assert texts(read({"messages": [USER, ANSWER], **beside}, metadata=tuple(beside))) == TALK


@pytest.mark.parametrize(
    "beside",
    [
        {"correctness": 0, "level": "hard", "grade": "B", "result": "negative", "status": 200},
        {"error": "-", "errors": [""], "error_code": 200, "exception": "<NA>"},
        {"error": {"code": None, "message": None}},
        {"error": "No errors found."},
        {"metadata": {"error": None, "sentiment": "bad", "status": "done"}, "info": {"passed": True}},
        {"correct": "1.0", "verdict": "correct", "rating": 5},
    ],
    ids=str,
)
def test_what_is_no_verdict_stays_metadata(beside: dict[str, Any]) -> None:
    assert texts(read({"messages": [USER, ANSWER], **beside})) == TALK


@pytest.mark.parametrize("key", ["error", "errors", "has_error", "exception", "error_message"])
def test_a_record_with_an_error_of_what_wrote_it_is_not_trained(key: str) -> None:
    for value in ["rate limit exceeded", True, "true", {"code": 429}, ["a"], 500]:
        reason, remedy = refused({"prompt": "Q", "response": "A", key: value})
        assert reason is Refusal.LABEL_UNCLEAR
        assert remedy == f"--max-rejects 100% sets such records aside, --metadata {key} trains them"
        assert texts(read({"prompt": "Q", "response": "A", key: value}, metadata=(key,))) == TALK
    nothings: list[Any] = [None, "", {}, [], False, 0, "none", "No error", "false", float("nan")]
    for nothing in nothings:
        assert texts(read({"prompt": "Q", "response": "A", key: nothing})) == TALK


@pytest.mark.parametrize("value", ["0", "no", "N", "false"])
def test_a_verdict_in_the_text_of_a_table_is_read(value: str) -> None:
    assert refused({"prompt": "Q", "response": "A", "passed": value})[0] is Refusal.LABEL_UNCLEAR


@pytest.mark.parametrize("key", ["unmask", "train_on_inputs"])
def test_questions_are_not_trained_and_a_record_that_demands_it_is_refused(key: str) -> None:
    record = {"messages": [USER, ANSWER], key: True}
    assert refused(record) == (Refusal.LABEL_UNCLEAR, f"--metadata {key} trains the answers")
    assert texts(read(record, metadata=(key,))) == texts(read({**record, key: False})) == TALK
