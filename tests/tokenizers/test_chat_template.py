"""The chat template as transformers renders it, and what of it is refused."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.tokenizers.chat_template import ChatTemplate, ChatTemplateError, load_chat_template

MESSAGES = [
    {"role": "system", "content": "Be <brief> & kind."},
    {"role": "user", "content": "  Grüße 👋 \n"},
    {"role": "assistant", "content": "Hallo"},
]
TOOLS = [{"type": "function", "function": {"name": "größe", "parameters": {"b": 1, "a": [True, None, "<"]}}}]

TEMPLATES = {
    "plain": "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m['content'] }}{% endfor %}",
    "blocks": "{% for m in messages %}\n  {% if m.role == 'user' %}\nU: {{ m.content | trim }}\n  {% endif %}\n"
    "{% endfor %}\nend",
    "tools": "{% if tools %}{{ tools | tojson(indent=2) }}{{ tools[0] | tojson(sort_keys=true) }}{% endif %}",
    "macro": "{% macro say(m) %}<{{ m.role }}>{{ m.content }}{% endmacro %}"
    "{% for m in messages %}{{ say(m) }}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{{ ns.n ~ ':' ~ (m.role ~ '!') }}"
    "{% endfor %}{{ ns.n * 2 }}",
    "loop": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ loop.index0 }}{{ m.content }}"
    "{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}",
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}{% endgeneration %}"
    "{% endif %}{% endfor %}",
    "filters": "{{ messages | map(attribute='role') | join(', ') }}{{ 'a' * 3 }}{{ '%s-%d' % ('x', 3) }}"
    "{{ messages[1:] | length }}{{ messages[0].content.split(' ')[0] }}{{ 'abc' | replace('b', 'xyz') | upper }}",
    "capture": "{% set text %}{{ messages[0].content }}{% endset %}{{ text ~ text }}{{ missing }}{{ none }}{{ 1.5 }}",
    "loop filter": "{% for m in messages if m.role != 'system' recursive %}"
    "{{ loop.length }}{{ m.role }}{% else %}none{% endfor %}",
}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [False, True])
def test_renders_what_transformers_renders(name: str, prompt: bool) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    text = TEMPLATES[name] + "{% if add_generation_prompt %}[assistant]{% endif %}\n"
    ours = ChatTemplate(text, special_tokens={"bos_token": "<s>"})
    theirs = render_jinja_template(
        conversations=[MESSAGES], tools=TOOLS, chat_template=text, add_generation_prompt=prompt, bos_token="<s>"
    )[0][0]
    assert ours.render(MESSAGES, tools=TOOLS, add_generation_prompt=prompt) == theirs


def test_what_is_null_in_a_message_is_not_in_it() -> None:
    """As transformers has it: no `None` in the text, and no branch for calls that are none."""
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    from tokenizers import Tokenizer

    text = "{% for m in messages %}{{ m.role }}:{{ m.content | trim }}{{ 'tool_calls' in m }}{% endfor %}"
    messages = [
        {"role": "user", "content": "a", "tool_calls": None},
        {"role": "assistant", "content": None, "tool_calls": [{"id": None}]},
    ]
    theirs = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a")))
    rendered = ChatTemplate(text).render(messages)
    assert rendered == "user:aFalseassistant:True"
    assert rendered == theirs.apply_chat_template(messages, chat_template=text, tokenize=False)


@given(st.lists(st.fixed_dictionaries({"role": st.sampled_from("suat"), "content": st.text()}), max_size=4))
def test_any_text_comes_through_as_it_is(messages: list[dict[str, str]]) -> None:
    template = ChatTemplate("{% for m in messages %}{{ m.role ~ '|' + m.content }}{% endfor %}")
    assert template.render(messages) == "".join(f"{m['role']}|{m['content']}" for m in messages)


@pytest.mark.parametrize(
    "ends", ["1:", ":1", ":-1", "::2", "::-1", "-2:", "5:", "0:0", "none:none", "true:", "[1:][1:]"]
)
@pytest.mark.parametrize("value", ["'abcd'", "messages[0].content", "range(5)", "(1, 2, 3)", "[1, 2] + messages"])
def test_a_slice_is_what_jinja_makes_of_it(ends: str, value: str) -> None:
    text = "{{ " + (f"({value}){ends}" if "[" in ends else f"({value})[{ends}]") + " }}"
    wanted = jinja2.Environment().from_string(text).render(messages=MESSAGES)
    assert ChatTemplate(text).render(MESSAGES) == wanted


@pytest.mark.parametrize("value", ["missing[1:]", "5[1:]", "'a'['b':]", "{}[1:]", "'abc'[::0]"])
def test_a_slice_that_fails_says_why(value: str) -> None:
    with pytest.raises(ChatTemplateError, match="failed"):
        ChatTemplate("{{ " + value + " }}").render(MESSAGES)


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ raise_exception.__globals__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ ''|attr('__class__')|attr('__mro__') }}",
        "{{ self._TemplateReference__context }}",
    ],
)
def test_what_the_sandbox_forbids_is_said(text: str) -> None:
    with pytest.raises(ChatTemplateError, match="sandbox forbids"):
        ChatTemplate(text).render(MESSAGES)


def test_the_environment_cannot_be_reached() -> None:
    for text in ("{{ environment }}", "{{ context }}", "{{ __builtins__ }}", "{{ begin_generation }}"):
        assert ChatTemplate(text).render(MESSAGES) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ raise_exception('no tools') }}", "refuses the messages: no tools"),
        ("{{ messages[0].content + 1 }}", "failed"),
        ("{{ missing.attribute }}", "undefined"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deep"),
        ("{% include 'other' %}", "failed"),
        ("{{ '' | random }}", "random"),
        ("{% if %}", "line 1"),
        ("{" * 3, "Jinja"),
        ("{{" + "(" * 5000 + ")" * 5000 + "}}", "template"),
        ("x" * 1_000_001, "more than 1,000,000"),
    ],
)
def test_a_template_that_fails_says_why(text: str, said: str) -> None:
    with pytest.raises(ChatTemplateError, match=said):
        ChatTemplate(text).render(MESSAGES)


def test_the_date_is_the_one_that_is_given() -> None:
    text = "{{ strftime_now('%d %b %Y') if strftime_now is defined else 'fixed' }}"
    assert ChatTemplate(text).render([]) == "fixed"
    assert ChatTemplate(text, now=datetime(2024, 7, 26)).render([]) == "26 Jul 2024"


def test_the_template_of_each_kind_of_file(tmp_path: Path) -> None:
    alone = tmp_path / "mine.jinja"
    alone.write_bytes(b"{{ bos_token }}one\n")
    assert load_chat_template(alone, special_tokens={"bos_token": "<b>"}).render([]) == "<b>one"

    config = tmp_path / "tokenizer_config.json"
    write(
        config,
        {"chat_template": "{{ bos_token ~ eos_token }}two", "bos_token": {"content": "<s>"}, "eos_token": "</s>"},
    )
    assert load_chat_template(config).render([]) == "<s></s>two"
    assert load_chat_template(tmp_path).render([]) == "<s></s>two"

    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}three")
    assert load_chat_template(tmp_path).render([]) == "<s>three"


def test_the_template_of_a_name(tmp_path: Path) -> None:
    config = tmp_path / "tokenizer_config.json"
    several = [{"name": "default", "template": "one"}, {"name": "tool_use", "template": "two"}]
    write(config, {"chat_template": several})
    assert load_chat_template(config).render([]) == "one"
    assert load_chat_template(config, name="tool_use").render([]) == "two"
    with pytest.raises(ChatTemplateError, match="'rag'; found: default, tool_use"):
        load_chat_template(config, name="rag")


@pytest.mark.parametrize("held", [b"[]", b"{", b"\xff", b"[" * 200_000, b"{}", b'{"chat_template": 3}'])
def test_a_file_without_a_template_is_an_error(tmp_path: Path, held: bytes) -> None:
    (tmp_path / "tokenizer_config.json").write_bytes(held)
    with pytest.raises(ChatTemplateError, match=r"tokenizer_config\.json"):
        load_chat_template(tmp_path / "tokenizer_config.json")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ChatTemplateError, match="no chat template"):
        load_chat_template(tmp_path / "none.jinja")
    with pytest.raises(ChatTemplateError, match="found: none"):
        load_chat_template(tmp_path)


def write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
