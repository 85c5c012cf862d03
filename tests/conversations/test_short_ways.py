"""What is decided at once for most messages and conversations is what the long way decides."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.conversations.conversation import Conversation, Settings
from spanloom.conversations.reading.markup import (
    CALL_STYLES,
    SOLUTION_TAGS,
    TEMPLATE_SHAPES,
    THINK_TAGS,
    may_hold_markup,
    template_mark,
)
from spanloom.conversations.reading.messages import plain_turn, turns_of
from spanloom.conversations.source.rejects import RowRefusedError
from spanloom.conversations.turns import Call, Dropping, Message, Reading, RecordRefusedError
from spanloom.families.harmony.contract.messages import harmony_fault, harmony_messages
from support.nightly import drawn

TAGS = [tag for pair in (*THINK_TAGS, *SOLUTION_TAGS) for tag in pair]
MARKS = [*TAGS, *TEMPLATE_SHAPES, *(mark for marks in CALL_STYLES.values() for mark in marks)]
BESIDE_MARKS = st.text(alphabet="<[|/t é", max_size=4)


@given(BESIDE_MARKS, st.none() | st.sampled_from(MARKS), BESIDE_MARKS)
def test_a_text_may_hold_markup_where_a_mark_is_in_it(before: str, mark: str | None, after: str) -> None:
    text = f".{before}{mark or ''}{after}"
    marked = any(tag in text for tag in TAGS) or template_mark(text) is not None
    assert may_hold_markup(text) == marked
    assert marked or mark is None


CALLS = st.fixed_dictionaries(
    {
        "type": st.just("function"),
        "function": st.fixed_dictionaries(
            {"name": st.sampled_from(["f", "functions.g", "no name"]), "arguments": st.sampled_from(["{}", "[]", "{"])}
        ),
    },
    optional={"id": st.sampled_from(["c1", "", None, 1])},
)
TEXTS = st.sampled_from(["A", "", " ", None, "<think>a</think>", "[f(a=1)]", ["A"]])
MESSAGES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "other", None])},
    optional={
        "content": TEXTS,
        "from": st.sampled_from(["human", "gpt"]),
        "value": TEXTS,
        "reasoning_content": TEXTS,
        "tool_calls": st.sampled_from([None, "[]", 0, {}]) | st.lists(CALLS, max_size=2),
        "tool_call_id": st.sampled_from(["c1", "", None, 1]),
        "name": st.sampled_from(["f", "functions.g", "", None, 1]),
    },
)


@settings(max_examples=drawn(1000, 165))
@given(MESSAGES)
def test_a_plain_turn_is_the_turn(message: dict[str, Any]) -> None:
    try:
        plain: list[Any] = [plain_turn(message, 3, Dropping())]
    except RecordRefusedError as refused:
        plain = [refused.detail]
    if plain == [None]:
        return
    try:
        turns: list[Any] = turns_of(message, 3, Reading(), Dropping())
    except RecordRefusedError as refused:
        turns = [refused.detail]
    assert plain == turns


SPOKEN = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "assistant", "tool", "system"]),
    texts=st.sampled_from([(), ("A",), ("A",)]),
    reasoning=st.sampled_from([(), ("R",)]),
    calls=st.lists(
        st.builds(Call, id=st.sampled_from(["c1", "c2", None]), name=st.just("f"), arguments=st.just("{}"))
    ).map(lambda calls: tuple(calls[:2])),
    call_id=st.sampled_from(["c1", "c2", None]),
    name=st.sampled_from([None, "f", "g"]),
    channel=st.sampled_from([None, None, "commentary", "final"]),
)


@settings(max_examples=drawn(1000, 165))
@given(st.lists(SPOKEN, min_size=1, max_size=5), st.sampled_from([None, "low", "none"]))
def test_harmony_is_said_to_hold_what_it_holds(messages: list[Message], effort: str | None) -> None:
    conversation = Conversation(messages=tuple(messages), settings=Settings(reasoning_effort=effort))
    try:
        harmony_messages(conversation)
        wanted = None
    except RowRefusedError as refused:
        wanted = refused.detail
    fault = harmony_fault(conversation)
    assert (fault and fault.detail) == wanted
