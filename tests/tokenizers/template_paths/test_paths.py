"""Paths: what is learned from one conversation holds for others with equal outcomes."""

from typing import Any

import pytest

from spanloom.tokenizers.template_paths.expressions import UnknownPath, Unloggable
from spanloom.tokenizers.template_paths.paths import Paths

CHAT = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% if m.role == 'assistant' %}{{ eos }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def chat(*texts: str) -> list[dict[str, Any]]:
    """User and assistant in turn."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


def test_other_texts_take_the_path_of_the_first() -> None:
    paths = Paths(CHAT, {"eos": "</s>"})
    assert paths.learn(chat(" one", "two"), None, prompt=False) == "<user>one<assistant>two</s>"
    assert paths.text(chat("three ", "four"), None, prompt=False) == "<user>three<assistant>four</s>"


def test_a_path_is_one_of_a_message_not_of_a_conversation() -> None:
    paths = Paths(CHAT, {"eos": "</s>"})
    paths.learn(chat("one", "two"), None, prompt=False)
    assert paths.text(chat(*"abcabc"), None, prompt=False) == "<user>a<assistant>b</s><user>c<assistant>a</s>" + (
        "<user>b<assistant>c</s>"
    )


def test_the_prompt_has_paths_of_its_own() -> None:
    paths = Paths(CHAT, {"eos": "</s>"})
    paths.learn(chat("one", "two"), None, prompt=False)
    with pytest.raises(UnknownPath):
        paths.text(chat("one"), None, prompt=True)
    paths.learn(chat("one"), None, prompt=True)
    assert paths.text(chat("two"), None, prompt=True) == "<user>two<assistant>"


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": ["x"]}],
        [{"role": "user", "content": 1}],
    ],
)
def test_a_role_or_a_type_that_was_not_seen_is_an_unknown_path(messages: list[dict[str, Any]]) -> None:
    paths = Paths(CHAT, {"eos": "</s>"})
    paths.learn(chat("one", "two"), None, prompt=False)
    with pytest.raises(UnknownPath):
        paths.text(messages, None, prompt=False)


def test_calls_have_paths_of_their_own() -> None:
    text = (
        "{% for m in messages %}{% for c in m.calls %}{{ loop.index }}{{ c.name }}={{ c.a | tojson }};{% endfor %}|"
        "{% endfor %}"
    )
    paths = Paths(text, {})
    paths.learn([{"role": "a", "calls": [{"name": "f", "a": 1}, {"name": "g", "a": 2}]}], None, prompt=False)
    calls = [{"name": name, "a": number} for number, name in enumerate("xyz")]
    assert paths.text([{"role": "a", "calls": calls}] * 2, None, prompt=False) == "1x=0;2y=1;3z=2;|" * 2


def test_a_template_with_state_outside_of_namespaces_is_refused() -> None:
    paths = Paths("{% set j = joiner() %}{{ j() }}", {})
    with pytest.raises(Unloggable):
        paths.learn(chat("one"), None, prompt=False)


def test_an_error_of_the_template_is_its_own() -> None:
    paths = Paths("{% for m in messages %}{{ m.content + 1 }}{% endfor %}", {})
    with pytest.raises(TypeError):
        paths.learn(chat("one"), None, prompt=False)
