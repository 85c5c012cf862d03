"""Which messages of the assistant a chat template cannot hold as the model writes them."""

from collections.abc import Mapping
from typing import Any

import pytest

from spanloom.conversations.runs import run_fault
from spanloom.conversations.source.format import CONVERSATIONS
from spanloom.conversations.source.structure import labelled
from spanloom.conversations.turns import Call, Message
from spanloom.families.models.source.harmony import neutral_conversation

ASKED = Message(role="user", texts=("q",))
RESULT = Message(role="tool", texts=("r",))


def answer(text: str = "a", **more: Any) -> Message:
    return Message(role="assistant", texts=(text,) if text else (), **more)


def thought(**more: Any) -> Message:
    return answer("", reasoning=("t",), **more)


def calls(**more: Any) -> Message:
    return answer("", calls=(Call(id="1", name="f", arguments="{}"),), **more)


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([ASKED, answer()], None),
        ([ASKED, answer(reasoning=("t",))], None),
        ([ASKED, calls(reasoning=("t",)), RESULT, answer()], None),
        ([ASKED, thought()], ("answer_missing", 1)),
        ([ASKED, answer("\n \n", reasoning=("t",))], ("answer_missing", 1)),
        ([ASKED, thought(), ASKED, answer()], ("answer_missing", 1)),
        ([ASKED, calls(), RESULT, thought()], ("answer_missing", 3)),
        ([ASKED, thought(trained=False), ASKED, answer()], None),  # context
        ([thought(), ASKED, answer()], None),  # no prompt leads to it: context
        ([ASKED, thought(), answer()], ("assistant_in_a_row", 2)),
        ([ASKED, thought(), calls(), RESULT, answer()], ("assistant_in_a_row", 2)),
        ([ASKED, calls(), calls(), RESULT, RESULT, answer()], ("assistant_in_a_row", 2)),
        ([ASKED, answer(), answer(trained=False)], ("assistant_in_a_row", 2)),
        ([ASKED, thought(trained=False), answer()], ("assistant_in_a_row", 2)),
    ],
)
def test_what_a_template_cannot_hold(messages: list[Message], fault: tuple[str, int] | None) -> None:
    found = run_fault(messages)
    assert (found and (found.reason.value, found.message)) == fault


def harmony(role: str, text: str, **more: str) -> Mapping[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}], **more}


def test_the_messages_of_one_turn_of_harmony_are_one_message() -> None:
    question, result = harmony("user", "q"), harmony("tool", "r", name="functions.f", channel="commentary")
    parts = [harmony("assistant", "t", channel="analysis"), harmony("assistant", "wait", channel="commentary")]
    call = harmony("assistant", "{}", channel="commentary", recipient="functions.f")
    final = harmony("assistant", "a", channel="final")
    whole = neutral_conversation(labelled([question, *parts, call, result, parts[0], final], CONVERSATIONS))
    assert run_fault(whole.messages) is None
    assert [(m.reasoning, m.texts, len(m.calls)) for m in whole.messages if m.role == "assistant"] == [
        (("t",), ("wait",), 1), (("t",), ("a",), 0),
    ]  # fmt: skip
    fault = run_fault(neutral_conversation(labelled([question, *parts[:1], question, final], CONVERSATIONS)).messages)
    assert fault is not None
    assert fault.reason == "answer_missing"
