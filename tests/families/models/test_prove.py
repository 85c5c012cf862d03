"""A conversation by a template: which tokens are trained, and as which span."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from families.models.conftest import Prove, proving_of
from spanloom.families.models.conversation import read_conversation
from spanloom.families.models.errors import ModelError
from spanloom.families.models.model import load_model
from spanloom.families.models.probe.form import find_form, variable_sets
from spanloom.families.models.prove.conversation import Proven, Proving, prove_conversation
from spanloom.families.models.prove.documents import Document
from support.chat_models import CHATML, small_tokenizer, write_model
from support.proven import texts_of_runs

QUESTION = {"role": "user", "content": "where?"}
FORGETS = (
    "{% for m in messages %}<|start|>{{ m.role }}\n"
    "{% if m.reasoning_content and loop.last %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
"""Forgets the reasoning of earlier turns."""


def parts(document: Document) -> list[tuple[int, str]]:
    """Stretches of one span, with their texts."""
    tokenizer = small_tokenizer()
    edges = [0, *(np.flatnonzero(np.diff(document.spans)) + 1).tolist(), len(document.spans)]
    return [
        (int(document.spans[first]), tokenizer.decode(document.tokens[first:last].tolist(), skip_special_tokens=False))
        for first, last in pairwise(edges)
    ]


def proven(outcome: Any) -> tuple[Document, ...]:
    assert isinstance(outcome, Proven), outcome
    return outcome.documents


def test_what_the_model_samples_is_trained_with_the_token_that_ends_its_turn(prove: Prove) -> None:
    messages = [QUESTION, {"role": "assistant", "content": "here"}]
    (document,) = proven(prove(CHATML, messages))
    assert parts(document) == [
        (0, "<|start|>user\nwhere?<|end|>\n<|start|>assistant\n"),
        (2, "here<|end|>"),
        (0, "\n"),
    ]
    assert document.mask.tolist() == (document.spans > 0).astype(int).tolist()
    assert (document.tokens.dtype, document.mask.dtype, document.spans.dtype) == (np.int32, np.uint8, np.uint8)


def test_reasoning_and_calls_have_spans_of_their_own(prove: Prove) -> None:
    call = {"id": "1", "name": "look", "arguments": {"at": "map"}}
    messages = [
        QUESTION,
        {"role": "assistant", "content": "wait", "reasoning": "a map", "tool_calls": [call]},
        {"role": "tool", "content": "north"},
        {"role": "assistant", "content": "north", "reasoning": "read it"},
    ]
    (document,) = proven(prove(CHATML, messages))
    assert [part for part in parts(document) if part[0]] == [
        (1, "<think>\na map\n</think>"),
        (3, '\n\nwait<call>look {"at": "map"}</call><|end|>'),
        (1, "<think>\nread it\n</think>"),
        (2, "\n\nnorth<|end|>"),
    ]


def test_several_runs_are_one_document_where_each_begins_the_next_prompt(prove: Prove) -> None:
    messages = [QUESTION, {"role": "assistant", "content": "here"}, QUESTION, {"role": "assistant", "content": "there"}]
    (document,) = proven(prove(CHATML, messages))
    assert [text for span, text in parts(document) if span] == ["here<|end|>", "there<|end|>"]


def test_a_template_that_rewrites_history_needs_a_document_for_each_run(prove: Prove) -> None:
    thinks = {"role": "assistant", "content": "here", "reasoning": "hm"}
    plain = {"role": "assistant", "content": "there"}
    documents = proven(prove(FORGETS, [QUESTION, thinks, QUESTION, plain, QUESTION, thinks]))
    # The second and third run share a document: nothing of the second is forgotten.
    assert [[run.run for run in document.runs] for document in documents] == [[1], [3, 5]]
    assert "hm" not in documents[1].text.split("there")[0]


def test_what_the_prompt_supplies_is_context(prove: Prove) -> None:
    template = CHATML.replace("<|start|>assistant\n{% endif %}", "<|start|>assistant\n<think>\n{% endif %}")
    messages = [QUESTION, {"role": "assistant", "content": "here", "reasoning": "hm"}]
    (document,) = proven(prove(template, messages))
    assert [part for part in parts(document) if part[0]] == [(1, "hm\n</think>"), (2, "\n\nhere<|end|>")]


def test_the_marker_of_whoever_speaks_next_ends_a_turn(prove: Prove, tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}</call>{% endfor %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    markers = ("<|user|>", "<|assistant|>", "<|tool|>")
    call = {"id": "1", "name": "look", "arguments": {}}
    messages = [
        QUESTION,
        {"role": "assistant", "content": "here"},
        QUESTION,
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    model = load_model(
        write_model(tmp_path / "m", template, stops=("<|user|>", "<|tool|>"), tokenizer=small_tokenizer(markers))
    )
    outcome = prove_conversation(model, read_conversation({"messages": messages}, name="c"), proving_of(model))
    (document,) = proven(outcome)
    assert document.text.endswith("here<|user|>where?<|assistant|><call>look</call><|tool|>")
    assert [run.turn_end for run in document.runs] == ["<|user|>", "<|tool|>"]
    assert int(document.mask.sum()) == sum(len(run.tokens) - run.first for run in document.runs)


def test_a_token_across_the_boundary_is_cut_as_servers_cut_it(prove: Prove) -> None:
    messages = [QUESTION, {"role": "assistant", "content": "\n\nhere"}]
    (document,) = proven(prove(CHATML, messages))
    assert document.runs[0].boundary == "served"
    assert [text for span, text in parts(document) if span] == ["\n\nhere<|end|>"]
    refusal = prove(CHATML, messages, served=False)
    assert not isinstance(refusal, Proven)
    assert refusal.kind == "merge_at_boundary"


def test_what_is_not_to_be_trained_is_context(prove: Prove) -> None:
    messages = [
        QUESTION, {"role": "assistant", "content": "here", "trained": False}, QUESTION,
        {"role": "assistant", "content": "there"},
    ]  # fmt: skip
    (document,) = proven(prove(CHATML, messages))
    assert [text for span, text in parts(document) if span] == ["there<|end|>"]


def test_a_greeting_without_a_prompt_is_context(prove: Prove) -> None:
    messages = [{"role": "assistant", "content": "welcome"}, QUESTION, {"role": "assistant", "content": "there"}]
    (document,) = proven(prove(CHATML, messages))
    assert [text for span, text in parts(document) if span] == ["there<|end|>"]


def test_thinking_is_switched_as_each_run_is_proven(prove: Prove) -> None:
    template = (
        "{% for m in messages %}<|start|>{{ m.role }}\n"
        "{% if m.role == 'assistant' %}{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n"
        "{% elif enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
        "{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant\n"
        "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n"
        "{% endif %}{% endif %}"
    )
    messages = [
        QUESTION, {"role": "assistant", "content": "here"}, QUESTION,
        {"role": "assistant", "content": "there", "reasoning": "hm"},
    ]  # fmt: skip
    outcome = prove(template, messages)
    assert isinstance(outcome, Proven)
    assert [dict(run.variables) for run in outcome.runs] == [{"enable_thinking": False}, {}]


def test_the_end_of_a_truncated_answer_is_context(prove: Prove) -> None:
    cut = {"role": "assistant", "content": "here", "truncated": True}
    (document,) = proven(prove(CHATML, [QUESTION, cut, QUESTION, {"role": "assistant", "content": "there"}]))
    assert [text for span, text in parts(document) if span] == ["here", "there<|end|>"]
    # What the template writes between a truncated text and the stop token is not the model's either.
    breaks = CHATML.replace("{{ m.content or '' }}", "{{ m.content or '' }}\n")
    (document,) = proven(prove(breaks, [QUESTION, cut]))
    assert [text for span, text in parts(document) if span] == ["here"]
    call = {"id": "1", "name": "look", "arguments": {}}
    (document,) = proven(prove(CHATML, [QUESTION, {**cut, "content": "", "tool_calls": [call]}]))
    assert [text for span, text in parts(document) if span] == ["<call>look {}</call>"]


CLOSES_AT_ONCE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}<think>\n{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""Writes an empty thought before an answer without reasoning; without thinking, the prompt supplies it."""


def test_an_empty_thought_is_trained_only_where_thinking_is_switched_on(tmp_path: Path) -> None:
    model = load_model(write_model(tmp_path / "m", CLOSES_AT_ONCE))
    thinks = {"role": "assistant", "content": "there", "reasoning": "hm"}
    messages = [QUESTION, {"role": "assistant", "content": "here"}, QUESTION, thinks]
    conversation = read_conversation({"messages": messages}, name="c")
    trained = {}
    for name, variables in (("auto", {}), ("on", {"enable_thinking": True}), ("off", {"enable_thinking": False})):
        sets = variable_sets(model.template, "auto", variables)
        outcome = prove_conversation(model, conversation, Proving(form=find_form(model.template, sets), variables=sets))
        if isinstance(outcome, Proven):
            texts = [text[run.prompt :] for run, text in texts_of_runs(outcome)]
            trained[name] = list(zip(texts, [run.thought for run in outcome.runs], strict=True))
        else:
            trained[name] = [(outcome.kind, bool(outcome.run))]
    thought = ("<think>\nhm\n</think>\n\nthere<|end|>", False)
    assert trained == {
        "auto": [("here<|end|>", False), thought],
        "on": [("<think>\n\n</think>\n\nhere<|end|>", True), thought],
        "off": [("prompt_not_prefix", True)],  # the message with reasoning
    }


def test_stop_tokens_must_be_declared(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", stops=())
    with pytest.raises(ModelError, match="no stop tokens are declared") as undeclared:
        load_model(folder)
    assert undeclared.value.remedy == "give them: --stop '<|end|>'", "one that the tokenizer has"
    with pytest.raises(ModelError, match="is not in the tokenizer"):
        load_model(folder, stops=["<|nothing|>"])
    assert list(load_model(folder, stops=["<|end|>"]).stops.values()) == ["<|end|>"]


def test_generation_marks_are_compared_and_decide_nothing(prove: Prove) -> None:
    messages = [QUESTION, {"role": "assistant", "content": "here"}, QUESTION, {"role": "assistant", "content": "there"}]
    answer = "{{ m.content or '' }}"
    marked = "{% generation %}" + answer + "<|end|>{% endgeneration %}"
    cases = {
        None: CHATML,
        True: CHATML.replace("<|end|>\n{% endfor %}{% if add", "\n{% endfor %}{% if add").replace(answer, marked),
        False: CHATML.replace(answer, "{% generation %}" + answer + "{% endgeneration %}"),
    }
    trained = []
    for equal, template in cases.items():
        outcome = prove(template, messages)
        assert isinstance(outcome, Proven), outcome
        assert [run.generation for run in outcome.runs] == [equal, equal]
        trained.append([text for span, text in parts(outcome.documents[0]) if span])
    assert trained == [["here<|end|>", "there<|end|>"]] * 3


def test_what_history_forgets_and_names_that_are_not_written_are_counted(prove: Prove) -> None:
    thinks = {"role": "assistant", "content": "here", "reasoning": "hm"}
    outcome = prove(FORGETS, [{**QUESTION, "name": "Ada"}, thinks, QUESTION, thinks, QUESTION, thinks])
    assert isinstance(outcome, Proven)
    assert [(run.forgotten, run.unnamed) for run in outcome.runs] == [(0, 1), (1, 1), (2, 1)]
    greets = FORGETS.replace("{{ m.content }}", "{{ m.content }}{% if m.name %} {{ m.name }}{% endif %}")
    outcome = prove(greets, [{**QUESTION, "name": "Ada"}, thinks])
    assert isinstance(outcome, Proven)
    assert [run.unnamed for run in outcome.runs] == [0]


def test_text_of_answers_that_are_not_trained_must_be_written(prove: Prove) -> None:
    template = CHATML.replace("{{ m.content or '' }}", "{{ m.content if m.role == 'user' or loop.last else '' }}")
    messages = [{"role": "assistant", "content": "welcome"}, QUESTION, {"role": "assistant", "content": "there"}]
    refusal = prove(template, messages)
    assert not isinstance(refusal, Proven)
    assert (refusal.kind, refusal.run) == ("text_dropped", 2)
    assert "'welcome' of message 0 (assistant)" in refusal.message
