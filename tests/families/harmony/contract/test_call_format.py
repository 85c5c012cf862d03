"""Calls as servers show them: against the text of the chat template that is published with gpt-oss."""

import json
from typing import Any

import openai_harmony
import pytest

from spanloom.families.harmony.contract.call_format import emitted_and_served, served
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.history import CutRules, cut_conversation
from spanloom.families.harmony.contract.profile import HARMONY_CHAT
from spanloom.families.harmony.render.official import render_through_harmony
from spanloom.tokenizers.chat_template import ChatTemplate, load_chat_template
from support import chat_sources as chat
from support.model_material import DAY, ROOT
from support.requirements import MODELS, absent

ARGUMENTS = {"city": "Oslo"}
RESULT = '4 °C, "clear"'


def test_a_message_that_is_no_constrained_call_stays_the_same_object() -> None:
    others = [chat.user("?"), chat.final("!"), chat.result("1"), {**chat.call("{}"), "content_type": "json"}]
    for message in (*others, {**chat.final("{}"), "content_type": "<|constrain|>json"}):
        assert served(message) is message
    call = {**chat.call("{}"), "content_type": "<|constrain|>yaml"}
    assert served(call) == {**call, "content_type": "yaml"}
    assert call["content_type"] == "<|constrain|>yaml"
    messages = [*others, call]
    assert emitted_and_served(messages, "constrain") == (messages, messages)
    assert emitted_and_served(messages, "json")[0][-1]["content_type"] == "yaml"


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    path = ROOT / "templates/lcpp_openai-gpt-oss-120b.jinja"
    if not path.is_file():
        absent(MODELS)
    return load_chat_template(path, now=DAY)


def spoken(template: ChatTemplate, messages: list[dict[str, Any]]) -> str:
    """What the template shows after its own system message, up to `<|start|>assistant`."""
    whole = template.render(messages, add_generation_prompt=True)
    return whole.partition("<|end|>")[2].removesuffix("<|start|>assistant")


CALL = {
    "role": "assistant",
    "thinking": "Look it up.",
    "tool_calls": [{"type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}],
}


def test_the_history_of_a_call_is_what_the_template_shows_but_for_the_text_of_the_result(
    template: ChatTemplate, encoding: openai_harmony.HarmonyEncoding
) -> None:
    theirs = spoken(template, [{"role": "user", "content": "Oslo?"}, CALL, {"role": "tool", "content": RESULT}])
    messages = [
        chat.user("Oslo?"),
        chat.analysis("Look it up."),
        chat.call(json.dumps(ARGUMENTS)),
        chat.result(RESULT),
        chat.analysis("Cold."),
        chat.final("4 °C."),
    ]
    for call_format, agrees in (("as-served", True), ("json", True), ("constrain", False)):
        parsed = parse_conversation(json.dumps({"messages": messages}), profile=HARMONY_CHAT)
        last = cut_conversation(parsed, CutRules(call_format=call_format)).cuts[-1]
        text = encoding.decode_utf8(render_through_harmony([last.shown], encoding).documents.tokens.tolist())
        ours = text.partition("<|start|>assistant<|channel|>analysis<|message|>Cold.")[0]
        # The template writes results once more as JSON: in quotation marks, with escapes.
        assert (ours.replace(RESULT, json.dumps(RESULT, ensure_ascii=False)) == theirs) is agrees


def test_what_else_the_template_shows_in_another_way(template: ChatTemplate) -> None:
    """The differences that docs/families/harmony.md names: a text before a call, the name of a user."""
    said = {**CALL, "content": "One moment."}
    del said["thinking"]
    answer = {"role": "assistant", "content": "4 °C."}
    question, result = {"role": "user", "name": "ann", "content": "Oslo?"}, {"role": "tool", "content": RESULT}
    shown = spoken(template, [question, said, result])
    assert shown.startswith("<|start|>user<|message|>Oslo?<|end|>")
    assert "<|start|>assistant<|channel|>analysis<|message|>One moment.<|end|>" in shown
    assert "One moment." not in spoken(template, [question, said, result, answer, question])
    with pytest.raises(Exception, match="Cannot pass both content and thinking"):
        spoken(template, [question, {**CALL, "content": "One moment."}, result])
