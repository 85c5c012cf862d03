"""Faults seeded in templates, tokenizers and data: refused under the class that names them, or trained right.

Each case was right before its fault: the template is ChatML with one change. A second method decides what right is:
where a case is trained, the texts of the assistant and one stop token are trained, and nothing else.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from families.models.conftest import proving_of
from spanloom.families.models.conversation import read_conversation
from spanloom.families.models.model import load_model
from spanloom.families.models.prove.conversation import Proven, prove_conversation
from support.chat_models import CHATML, small_tokenizer, write_model

USER = {"role": "user", "content": "where is it?"}
ANSWER = {"role": "assistant", "content": "It is in the north."}
THINKS = {"role": "assistant", "content": "north", "reasoning": "the map says so"}
CALLS = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "1", "name": "look", "arguments": {"place": "map", "zoom": 4}}],
}
SYSTEM = {"role": "system", "content": "Answer in one sentence."}
SWITCH = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "1", "name": "look", "arguments": {"open": False, "limit": None}}],
}
TOOLS = [
    {"name": name, "description": f"Does {name}.", "parameters": {"type": "object", "properties": {where: {}}}}
    for name, where in (("look", "place"), ("walk", "road"))
]
TURN = [USER, ANSWER]
EACH = "{{ c.function.arguments | tojson }}"
PAIRS = "{% for k, v in c.function.arguments.items() %}{{ k }}=VALUE;{% endfor %}"
CONTENT = "{{ m.content or '' }}"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`expected`: the class of the refusal, or the trained texts of each document."""

    expected: str | list[list[str]]
    template: str = CHATML
    messages: list[dict[str, Any]] = field(default_factory=lambda: TURN)
    stops: tuple[str, ...] = ("<|end|>",)
    special: tuple[str, ...] = ("<|start|>", "<|end|>", "<|eof|>", "<|bos|>")
    served: bool = True
    tools: list[dict[str, Any]] | None = None


def changed(old: str, new: str, template: str = CHATML) -> str:
    assert old in template
    return template.replace(old, new)


FAULTS = {
    "the template raises": Fault(
        template="{{ raise_exception('no') if messages | length > 1 }}" + CHATML, expected="template_raises"
    ),
    "the template concatenates nothing": Fault(
        template=CHATML + "{{ 'a' + messages[0].x.y }}", expected="template_fails"
    ),
    "the content is dropped": Fault(template=changed(CONTENT, ""), expected="text_dropped"),
    "reasoning is dropped": Fault(
        template=changed("<think>\n{{ m.reasoning_content }}\n</think>", "{# {{ m.reasoning_content }} #}"),
        messages=[USER, THINKS],
        # Written into the content then, by us.
        expected=[["<think>\nthe map says so\n</think>", "\n\nnorth<|end|>"]],
    ),
    "the name of a call is dropped": Fault(
        template=changed("{{ c.function.name }} ", ""), messages=[USER, CALLS], expected="text_dropped"
    ),
    "the second call is dropped": Fault(
        template=changed("in m.tool_calls or []", "in (m.tool_calls or [])[:1]"),
        messages=[USER, {**CALLS, "tool_calls": CALLS["tool_calls"] * 2}],
        expected="text_dropped",
    ),
    "numbers of arguments are dropped": Fault(
        template=changed(
            "{{ c.function.arguments | tojson }}",
            "{% for k, v in c.function.arguments.items() %}{{ k }}={% if v is string %}{{ v }}{% endif %};{% endfor %}",
        ),
        messages=[USER, CALLS],
        expected="text_dropped",
    ),
    "the content is changed to capitals": Fault(
        template=changed(CONTENT, "{{ (m.content or '') | upper }}"), expected="text_altered"
    ),
    "the content is cut": Fault(template=changed(CONTENT, "{{ (m.content or '')[:7] }}"), expected="text_altered"),
    "the content is written twice": Fault(template=changed(CONTENT, CONTENT * 2), expected="text_altered"),
    "words are replaced": Fault(
        template=changed(CONTENT, "{{ (m.content or '').replace('north', 'south') }}"), expected="text_altered"
    ),
    "HTML is escaped": Fault(
        template=changed(CONTENT, "{{ (m.content or '') | e }}"),
        messages=[USER, {"role": "assistant", "content": "a < b"}],
        expected="text_dropped",
    ),
    "the content is trimmed": Fault(
        template=changed(CONTENT, "{{ (m.content or '') | trim }}"),
        messages=[USER, {"role": "assistant", "content": "  north \n"}],
        expected=[["north<|end|>"]],
    ),
    "the prompt opens a thought that the text has not": Fault(
        template=changed("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"), expected="prompt_not_prefix"
    ),
    "the prompt has another role": Fault(
        template=changed("<|start|>assistant\n{% endif %}", "<|start|>model\n{% endif %}"),
        expected="prompt_not_prefix",
    ),
    "the prompt supplies a thought": Fault(
        template=changed("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"),
        messages=[USER, THINKS],
        expected=[["the map says so\n</think>", "\n\nnorth<|end|>"]],
    ),
    "a token spans the boundary": Fault(
        messages=[USER, {"role": "assistant", "content": "\n\nnorth"}], served=False, expected="merge_at_boundary"
    ),
    "messages are in another order": Fault(
        template=changed("{% for m in messages %}", "{% for m in messages | reverse %}"), expected="prompt_not_prefix"
    ),
    "the question is repeated in the answer": Fault(
        template=changed(CONTENT, "{% if m.role == 'assistant' %}{{ messages[0].content }} {% endif %}" + CONTENT),
        expected="mixed_texts",
    ),
    "the stop token is not written": Fault(template=changed("<|end|>\n", "\n"), expected="no_turn_end"),
    "the stop token is not the declared one": Fault(stops=("<|eof|>",), expected="no_turn_end"),
    "stop tokens are behind each call": Fault(
        template=changed("</call>", "</call><|end|>"),
        messages=[USER, {**CALLS, "tool_calls": CALLS["tool_calls"] * 2}],
        expected="no_turn_end",
    ),
    "two stop tokens follow each other": Fault(
        template=changed("<|end|>\n", "<|end|><|eof|>\n"),
        stops=("<|end|>", "<|eof|>"),
        expected=[["It is in the north.<|end|>"]],
    ),
    "the text holds the stop token": Fault(
        messages=[USER, {"role": "assistant", "content": "it ends by <|end|>"}], expected="special_in_text"
    ),
    "the arguments hold a control token": Fault(
        messages=[USER, {**CALLS, "tool_calls": [{"id": "1", "name": "look", "arguments": {"a": "<|start|>"}}]}],
        expected="special_in_text",
    ),
    "a stop token is not flagged special": Fault(
        special=("<|start|>", "<|eof|>", "<|bos|>"),
        messages=[USER, {"role": "assistant", "content": "it ends by <|end|>"}],
        expected="special_in_text",
    ),
    "the frame depends on the text": Fault(
        template=changed(CONTENT, CONTENT + "{% if 'north' in (m.content or '') %}!{% endif %}"),
        expected="structure_depends_on_text",
    ),
    "the frame depends on the text's length": Fault(
        template=changed(CONTENT, CONTENT + "{% if (m.content or '') | length > 15 %}!{% endif %}"),
        expected="structure_depends_on_text",
    ),
    "the text holds the tag that the template splits at": Fault(
        template=changed(CONTENT, "{{ (m.content or '').split('</think>')[-1] }}"),
        messages=[USER, {"role": "assistant", "content": "it is </think> north"}],
        expected="text_altered",
    ),
    "BOS is written twice": Fault(template="{{ bos_token }}{{ bos_token }}" + CHATML, expected="double_bos"),
    "the date is in the prompt": Fault(template="{{ strftime_now('%d %b %Y') }}" + CHATML, expected="undated"),
    "calls are written as Python": Fault(
        template=changed("{{ c.function.arguments | tojson }}", "{{ c.function.arguments }}"),
        messages=[USER, CALLS],
        # Arguments are given as JSON text then.
        expected=[['<call>look {"place": "map", "zoom": 4}</call><|end|>']],
    ),
    "calls are left out where the content is empty text": Fault(
        template=changed("in m.tool_calls or []", "in (m.tool_calls or []) if m.content is not defined"),
        messages=[USER, CALLS],
        expected=[['<call>look {"place": "map", "zoom": 4}</call><|end|>']],
    ),
    "the last turn is closed by another token": Fault(
        template=changed(
            "<|end|>\n", "{% if loop.last and not add_generation_prompt %}<|eof|>{% else %}<|end|>{% endif %}"
        ),
        messages=[*TURN, *TURN],
        stops=("<|end|>", "<|eof|>"),
        expected=[["It is in the north.<|eof|>"], ["It is in the north.<|eof|>"]],
    ),
    "a default system text": Fault(
        template="{% if messages[0].role != 'system' %}<|start|>system\nBe good.<|end|>\n{% endif %}" + CHATML,
        expected=[["It is in the north.<|end|>"]],
    ),
    "generation marks around too much": Fault(
        template=changed("<|start|>{{ m.role }}\n", "{% generation %}<|start|>{{ m.role }}\n").replace(
            "<|end|>\n{% endfor %}", "<|end|>\n{% endgeneration %}{% endfor %}"
        ),
        expected=[["It is in the north.<|end|>"]],
    ),
    "the system text is dropped": Fault(
        template=changed(CONTENT, "{% if m.role != 'system' %}" + CONTENT + "{% endif %}"),
        messages=[SYSTEM, ANSWER],
        expected="text_dropped",
    ),
    "the question is cut": Fault(
        template=changed(CONTENT, "{{ m.content[:7] if m.role == 'user' else m.content }}"), expected="text_dropped"
    ),
    "the tools are dropped": Fault(
        template=changed("{% if tools %}", "{% if false %}"), tools=TOOLS, expected="text_dropped"
    ),
    "the second tool is dropped": Fault(
        template=changed("{{ tools | tojson }}", "{{ tools[:1] | tojson }}"), tools=TOOLS, expected="text_dropped"
    ),
    "parameters of tools are dropped": Fault(
        template=changed(
            "{{ tools | tojson }}",
            "{% for t in tools %}{{ t.function.name }}: {{ t.function.description }}{% endfor %}",
        ),
        tools=TOOLS,
        expected="text_dropped",
    ),
    "null arguments are dropped": Fault(
        template=changed(EACH, PAIRS.replace("{{ k }}=VALUE;", "{% if v is not none %}{{ k }}={{ v }};{% endif %}")),
        messages=[USER, SWITCH],
        expected="text_dropped",
    ),
    "booleans are all written as true": Fault(
        template=changed(EACH, PAIRS.replace("VALUE", "{{ 'true' if v is boolean else v }}")),
        messages=[USER, SWITCH],
        expected="structure_depends_on_text",
    ),
    "booleans and nulls are written as Python": Fault(
        template=changed(EACH, PAIRS.replace("VALUE", "{{ v }}")),
        messages=[USER, SWITCH],
        expected=[["<call>look open=False;limit=None;</call><|end|>"]],
    ),
    "the text is Jinja": Fault(
        messages=[USER, {"role": "assistant", "content": "{{ messages }}{% endfor %}"}],
        expected=[["{{ messages }}{% endfor %}<|end|>"]],
    ),
    "the question is the answer": Fault(
        messages=[ANSWER | {"role": "user"}, ANSWER], expected=[["It is in the north.<|end|>"]]
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refused_or_trained_right(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    plain = ["<think>", "</think>", *(stop for stop in fault.stops if stop not in fault.special)]
    tokenizer = small_tokenizer(fault.special, plain)
    model = load_model(write_model(tmp_path / "m", fault.template, stops=fault.stops, tokenizer=tokenizer))
    conversation = read_conversation({"messages": fault.messages, "tools": fault.tools}, name=name)
    outcome = prove_conversation(model, conversation, proving_of(model, served=fault.served))
    if isinstance(fault.expected, str):
        assert not isinstance(outcome, Proven)
        assert (outcome.kind, outcome.run) == (fault.expected, 1)
        assert outcome.message
        assert outcome.remedy
        return
    assert isinstance(outcome, Proven), outcome
    trained = []
    for document in outcome.documents:
        stretches: dict[int, list[int]] = {}
        number = 0
        for place, (token, span) in enumerate(zip(document.tokens.tolist(), document.spans.tolist(), strict=True)):
            number += bool(place and span != document.spans[place - 1])
            if span:
                stretches.setdefault(number, []).append(token)
        trained.append([tokenizer.decode(ids, skip_special_tokens=False) for ids in stretches.values()])
        assert (document.mask == (document.spans > 0)).all()
    assert trained == fault.expected


def test_no_class_is_left_without_a_case() -> None:
    from spanloom.families.models.prove.refusals import REMEDIES

    seeded = {fault.expected for fault in FAULTS.values() if isinstance(fault.expected, str)}
    # A token of two spans needs texts that touch; a text that changes by tracing would be a fault of ours; a default
    # system text is refused on request alone.
    assert set(REMEDIES) - seeded == {"token_straddles", "trace_changes", "default_system"}
