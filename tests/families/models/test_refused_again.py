"""Refusals found again by the code of validation: each class that proving gives fits.

Nothing is wrong with what is proven.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from families.models.test_faults import FAULTS, Fault
from spanloom.dataset.manifest import Content
from spanloom.families.models.documents.rules import ModelRules, load_ingredients
from spanloom.families.models.verify.faults import fitting_classes, lost_texts
from spanloom.families.models.verify.messages import PlainConversation, plain_conversation
from spanloom.families.models.verify.reference import Reference
from support.chat_models import CHATML, small_tokenizer, write_model


def reference_of(root: Path, fault: Fault) -> Reference:
    """What validation loads of a dataset's root, here of a model's folder alone."""
    plain = ["<think>", "</think>", *(stop for stop in fault.stops if stop not in fault.special)]
    folder = write_model(
        root / "model", fault.template, stops=fault.stops, tokenizer=small_tokenizer(fault.special, plain)
    )
    rules = ModelRules(inline_think=True, boundary="served" if fault.served else "refuse")
    config = load_ingredients(folder, rules).config()
    return Reference(root, cast("Content", SimpleNamespace(config=config)))


def row(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> PlainConversation:
    written = [
        {
            **message,
            "tool_calls": [
                {**call, "arguments": json.dumps(call["arguments"])} for call in message.get("tool_calls") or []
            ],
        }
        for message in messages
    ]
    return plain_conversation(json.dumps({"messages": written, "tools": tools}).encode(), "conversations_v1")


@pytest.mark.parametrize("name", FAULTS)
def test_the_class_of_each_refusal_is_found_again(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    classes = fitting_classes(reference_of(tmp_path, fault), row(fault.messages, fault.tools))
    if isinstance(fault.expected, str):
        assert fault.expected in classes
    else:
        assert classes == set()


def test_texts_that_a_template_drops_are_named(tmp_path: Path) -> None:
    fault = Fault(template=CHATML.replace("{% if tools %}", "{% if false %}"), expected="text_dropped")
    tools = [{"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}]
    reference = reference_of(tmp_path, fault)
    assert lost_texts(reference, row(fault.messages, tools), 1, {}) == ["look", "Looks."]
    assert lost_texts(reference, row(fault.messages), 1, {}) == []
