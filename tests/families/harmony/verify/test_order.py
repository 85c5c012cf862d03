"""What ends a message and which message follows which, read off small arrays of tokens."""

import numpy as np
import pytest

from spanloom.families.harmony.tokenizer import CALL, CHANNEL, CONSTRAIN, END, EOD, MESSAGE, RETURN, START
from spanloom.families.harmony.verify.structure.messages import (
    ANALYSIS,
    ASSISTANT,
    COMMENTARY,
    CONTEXT_ROLES,
    FINAL,
    TO,
    TOOLS,
    Faults,
    read_messages,
)
from spanloom.families.harmony.verify.structure.order import check_ends, check_order

SYSTEM = [START, CONTEXT_ROLES["system"], MESSAGE, 5, END]
USER = [START, CONTEXT_ROLES["user"], MESSAGE, 5, END]
TOOL = [START, TOOLS["functions"], 7, TO, 9, CHANNEL, *COMMENTARY, MESSAGE, 5, END]
THINK = [START, ASSISTANT, CHANNEL, ANALYSIS, MESSAGE, 5, END]
SAY = [START, ASSISTANT, CHANNEL, *COMMENTARY, MESSAGE, 5, END]
CALLS = [START, ASSISTANT, TO, 9, CHANNEL, *COMMENTARY, CONSTRAIN, 6, MESSAGE, 5, CALL]
ANSWER = [START, ASSISTANT, CHANNEL, FINAL, MESSAGE, 5, RETURN]
BEFORE = [*ANSWER[:-1], END]
"""An answer that is not the last message."""


def faults(*messages: list[int], ends_in_run: bool = True) -> list[str]:
    document = [*(token for message in messages for token in message), EOD]
    lengths = np.array([len(document)], dtype=np.int32)
    found = Faults(lengths)
    read = read_messages(np.array(document, dtype=np.int32), lengths, found, chat=True)
    check_ends(read, found, chat=True)
    check_order(read, found, ends_in_run=ends_in_run)
    return [fault.message for fault in found.found]


@pytest.mark.parametrize(
    "messages",
    [
        [SYSTEM, USER, THINK, ANSWER],
        [SYSTEM, USER, THINK, SAY, CALLS, TOOL, THINK, BEFORE, USER, ANSWER],
        [SYSTEM, USER, CALLS],
        [SYSTEM, USER, CALLS, USER, USER, ANSWER],
    ],
)
def test_what_a_render_may_be(messages: list[list[int]]) -> None:
    assert faults(*messages) == []


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([SYSTEM, USER, BEFORE], "the last answer does not end in <|return|>"),
        ([SYSTEM, USER, ANSWER, USER, ANSWER], "<|return|> ends what is not the last answer"),
        ([SYSTEM, [*USER[:-1], CALL], ANSWER], "<|call|> ends a message of context"),
        ([SYSTEM, USER, [*CALLS[:-1], END], TOOL, ANSWER], "a call does not end in <|call|>"),
        ([SYSTEM, USER, [*SAY[:-1], CALL], TOOL, ANSWER], "<|call|> ends a message that calls nothing"),
        ([USER, ANSWER], "the system message is missing"),
        ([SYSTEM, USER, TOOL, ANSWER], "this message cannot follow the one before it"),
        ([SYSTEM, USER, THINK, USER, ANSWER], "this message cannot follow the one before it"),
        ([SYSTEM, USER, BEFORE, ANSWER], "this message cannot follow the one before it"),
        ([SYSTEM, USER, SYSTEM, ANSWER], "this message cannot follow the one before it"),
        ([SYSTEM, USER, [*ANSWER[:-1], CONSTRAIN, 5, RETURN]], "a control token is inside a text or a header"),
        ([SYSTEM, [START, *USER[1:3], END, 5, END], ANSWER], "a control token is inside a text or a header"),
        ([SYSTEM, [*THINK[:4], CHANNEL, *THINK[4:]], ANSWER], "a control token is inside a text or a header"),
    ],
)
def test_what_no_render_is(messages: list[list[int]], fault: str) -> None:
    assert fault in faults(*messages)


def test_a_document_that_ends_in_a_question() -> None:
    assert faults(SYSTEM, USER, BEFORE, USER) == ["the document ends without an answer or a call"]
    assert faults(SYSTEM, USER, BEFORE, USER, ends_in_run=False) == []
    assert faults(SYSTEM, USER, THINK, ends_in_run=False) == ["the document ends without an answer or a call"]
