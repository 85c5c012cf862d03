"""Rows of `conversations_v1`: building and validation, which share no code, take and refuse the same, in equal words.

`SPANLOOM_EXAMPLES` says how many rows are drawn; nightly draws more.
"""

import json
import os
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.conversations.source.rejects import RowRefusedError
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.profile import CHAT_OF_ANY_MODEL
from spanloom.families.harmony.verify.any_model import harmony_or_refusal
from support.nightly import drawn

EXAMPLES = int(os.environ.get("SPANLOOM_EXAMPLES", drawn(1500, 200)))

NAMES = st.sampled_from(["f", "g"])
TEXTS = st.sampled_from(["", "a", "b c", "ü"])
CONTENTS = st.one_of(TEXTS, TEXTS, st.none(), st.lists(TEXTS, max_size=3))
WRONG = st.sampled_from([1, True, [], {}, [1], "x", None, 0.5, -1])
CALLS = st.fixed_dictionaries(
    {"name": NAMES, "arguments": st.sampled_from(["{}", '{"a": 1}'])},
    optional={"id": st.sampled_from(["1", "2", None])},
)
MESSAGES = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "developer"]), "content": CONTENTS}),
    st.fixed_dictionaries({"role": st.just("user"), "content": CONTENTS}, optional={"name": st.just("Ada")}),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": CONTENTS},
        optional={
            "reasoning": CONTENTS,
            "tool_calls": st.lists(CALLS, max_size=2),
            "channel": st.sampled_from(["commentary", "final", None]),
            "trained": st.booleans(),
        },
    ),
    st.fixed_dictionaries(
        {"role": st.just("tool"), "content": CONTENTS},
        optional={"tool_call_id": st.sampled_from(["1", "2", None]), "name": NAMES},
    ),
)
TOOLS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES}, optional={"description": TEXTS, "parameters": st.sampled_from([{}, {"type": "object"}, None])}
    ),
    max_size=2,
)
CONVERSATIONS = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGES, max_size=5)},
    optional={
        "tools": TOOLS,
        "settings": st.fixed_dictionaries(
            {},
            optional={
                "reasoning_effort": st.sampled_from(["low", "HIGH", "minimal", None]),
                "model_identity": TEXTS,
                "conversation_start_date": TEXTS,
                "knowledge_cutoff": TEXTS,
            },
        ),
        "chat_template_kwargs": st.sampled_from([{}, {"enable_thinking": False}, None]),
        "weight": st.sampled_from([1, 0.5, 0, None]),
    },
)


@st.composite
def rows(draw: Any) -> Any:
    """A conversation, at times with a value of another type in one place, or an unknown key."""
    whole = draw(CONVERSATIONS)
    places = [whole, *whole["messages"], *(call for m in whole["messages"] for call in m.get("tool_calls") or ())]
    places += [*(whole.get("tools") or ()), *([whole["settings"]] if whole.get("settings") else [])]
    if draw(st.integers(0, 2)) == 0:
        place = draw(st.sampled_from(places))
        place[draw(st.sampled_from([*place, "other"]))] = draw(WRONG)
    return whole


def built(text: bytes) -> Any:
    """What a build makes of a row: messages with their trained flags and the weight, or why it refuses."""
    try:
        parsed = parse_conversation(text, profile=CHAT_OF_ANY_MODEL)
    except RowRefusedError as refused:
        return refused.reason.value, refused.detail
    flags = [bool(label) for label, message in zip(parsed.labels, parsed.messages, strict=True) if is_answer(message)]
    return parsed.messages, flags, parsed.weight


def validated(text: bytes) -> Any:
    """The same by the second reading."""
    found, refusal = harmony_or_refusal(text)
    if refusal is not None:
        return refusal.reason, refusal.detail
    whole = json.loads(found or b"")
    flags = [message.pop("trained", True) for message in whole["messages"] if is_answer(message)]
    return whole["messages"], flags, whole.get("weight", 1.0)


def is_answer(message: dict[str, Any]) -> bool:
    return bool(message["role"] == "assistant")


@settings(max_examples=EXAMPLES)
@given(whole=rows())
def test_building_and_validation_read_a_row_alike(whole: Any) -> None:
    text = json.dumps(whole).encode()
    assert built(text) == validated(text)
