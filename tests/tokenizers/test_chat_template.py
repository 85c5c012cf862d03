"""The chat template as transformers renders it, and every way that a template may run away."""

import ctypes
import json
import sys
import tracemalloc
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.tokenizers.chat_template import ChatTemplate, ChatTemplateError, Limits, load_chat_template
from spanloom.tokenizers.template_sandbox import _width

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


ENDLESS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "calls": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
    "recursive loop": "{% for a in [1, 1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "doubling": "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "doubling by ~": "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "doubling by capture": "{% set n = namespace(x='ab') %}{% for i in range(99) %}"
    "{% set x %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = x %}{% endfor %}",
    "doubling by list": "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "doubling by format": "{% set n = namespace(x='ab') %}{% for i in range(99) %}"
    "{% set n.x = '%s%s' % (n.x, n.x) %}{% endfor %}",
    "doubling by join": "{% set n = namespace(x='ab') %}{% for i in range(99) %}"
    "{% set n.x = [n.x, n.x] | join %}{% endfor %}",
    "doubling by method": "{% set n = namespace(x='ab') %}{% for i in range(99) %}"
    "{% set n.x = '{0}{0}'.format(n.x) %}{% endfor %}",
    "doubling by replace": "{% set n = namespace(x='aa') %}{% for i in range(99) %}"
    "{% set n.x = n.x | replace('a', 'aa') %}{% endfor %}",
    "repeated text": "{{ 'ab' * 999999999 }}",
    "repeated text, turned": "{{ 999999999 * 'ab' }}",
    "repeated list": "{{ [1] * 999999999 }}",
    "power": "{{ 9 ** 99999999 }}",
    "squares": "{% set n = namespace(x=9) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "center": "{{ 'a' | center(999999999) }}",
    "ljust": "{{ 'a'.ljust(999999999) }}",
    "width": "{{ '%999999999d' % 1 }}",
    "width of a filter": "{{ '%999999999d' | format(1) }}",
    "width of a method": "{{ '{:>999999999}'.format(1) }}",
    "indent": "{{ [[1]] | tojson(indent=99999) }}",
    "batch": "{{ [1] | batch(999999999, 0) | list }}",
    "long text a million times": "{% for i in range(99999) %}" + "x" * 9_000 + "{% endfor %}",
    "joined by a long text": "{% set s = 'x' * 99999 %}{{ range(99999) | join(s) }}",
    "joined by a long text, method": "{% set s = 'x' * 99999 %}{{ s.join(range(99999) | map('string')) }}",
    "long text joined by a long text": "{% set s = 'x' * 99999 %}{{ s | join(s) }}",
    "lists of lists": "{% set n = namespace(x=[]) %}{% for i in range(99) %}"
    "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "dicts of dicts": "{% set n = namespace(x=1) %}{% for i in range(99) %}"
    "{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}",
    "dicts by call": "{% set n = namespace(x=1) %}{% for i in range(99) %}"
    "{% set n.x = dict(a=n.x, b=n.x) %}{% endfor %}",
    "namespaces": "{% set n = namespace(x=1) %}{% for i in range(99) %}"
    "{% set n.x = namespace(a=n.x, b=n.x) %}{% endfor %}{{ n.x }}",
    "tuples": "{% set n = namespace(x=1) %}{% for i in range(99) %}"
    "{% set n.x = (n.x, n.x) %}{% endfor %}{{ n.x | tojson }}",
    "lists compared": "{% set n = namespace(x=[], y=[]) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}"
    "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
    "many widths": "{{ '%99999d' * 9999 % () }}",
    "many widths of a method": "{{ ('{:>99999}' * 9999).format(*range(9999)) }}",
    "long separators": "{% set s = 'x' * 99999 %}{{ range(99999) | list | tojson(separators=(s, s)) }}",
    "filters alone": "{% for a in range(99999) %}{{ range(99999) | map('string') | list | length }}{% endfor %}",
}


LONG = "{% set a = 'x' * 900000 %}"
KEPT = {
    "slices": LONG + "".join(f"{{% set b{number} = a[{number}:] %}}" for number in range(100)),
    "slices let go": LONG + "{% set b = a[1:] %}" * 100,
    "slices backwards": LONG + "{% set b = a[::-1] %}" * 100,
    "slices of joined texts": "{% set b = ('x' * 900000 ~ 'x')[1:] %}" * 100,
    "slices of slices": LONG + "{% set b = a[1:][1:][1:] %}" * 40,
    "slices of lists": "{% set a = range(99999) | list %}" + "{% set b = a[1:] %}" * 100,
    "slices of methods": LONG + "{% set b = a.strip('y')[:-1] %}" * 100,
    "blocks": LONG + "".join(f"{{% set b{number} %}}y{{{{ a }}}}{{% endset %}}" for number in range(100)),
    "parts": LONG + "".join(f"{{% set b{number} = a.split('x') %}}" for number in range(100)),
    "lists of characters": LONG + "".join(f"{{% set b{number} = a | list %}}" for number in range(100)),
    "filters of constants": "".join("{{ 'x' | center(99999) }}" for number in range(1000)),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_template_without_loops_keeps_no_more_than_the_limits(name: str) -> None:
    template = ChatTemplate(KEPT[name], limits=Limits(characters=10_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(ChatTemplateError, match="grows without end"):
            template.render(MESSAGES)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Before it is refused a list of parts is made: a reference and a text for each.
    assert peak < 80_000_000


def test_wide_characters_count_by_their_bytes() -> None:
    limits = Limits(bytes=10_000_000)
    for character, most in (("x", 9), ("é", 9), ("語", 4), ("😀", 2)):
        text = f"{{% set a = '{character}' * 1000000 %}}"
        ChatTemplate(text + "{% set b = a[:] %}" * (most - 1), limits=limits).render(MESSAGES)
        with pytest.raises(ChatTemplateError, match="more than 10,000,000 bytes of text"):
            ChatTemplate(text + "{% set b = a[:] %}" * (most + 1), limits=limits).render(MESSAGES)


@pytest.mark.parametrize("count", [1, 2, 1000])
@pytest.mark.parametrize(("character", "width"), [("x", 1), ("é", 1), ("é中", 2), ("語", 2), ("語x", 2), ("😀", 4)])
def test_the_width_of_a_text_does_not_depend_on_who_asked_for_its_utf8(character: str, width: int, count: int) -> None:
    text = "".join([character] * count)
    assert _width(text) == width
    as_utf8 = ctypes.pythonapi.PyUnicode_AsUTF8
    as_utf8.argtypes, as_utf8.restype = [ctypes.py_object], ctypes.c_char_p
    assert as_utf8(text) == text.encode()
    assert text.isascii() or sys.getsizeof(text) > len(text) * (width + 1)
    # One length of UTF-8 makes a text of width 2 look like one of width 4 without: then the larger counts.
    assert _width(text) == (4 if width == 2 and len(text.encode()) == 2 * len(text) + 1 else width)


@pytest.mark.parametrize(
    "text",
    [
        "{% set a = messages[1:] %}",
        "{{ 'x' in messages }}",
        "{{ messages == messages }}",
        "{{ 1 is in messages }}",
        "{{ messages | length }}",
        "{{ (messages[0].content * 999)[1:] }}",
        "{{ messages[0].content * 999 ~ '' }}",
        "{{ [messages[0].content * 999] }}",
        "{{ messages[0].content * 999 }}",
    ],
)
def test_the_clock_is_looked_at_with_each_operation(text: str) -> None:
    with pytest.raises(ChatTemplateError, match="runs for more than"):
        ChatTemplate(text, limits=Limits(seconds=-1)).render(MESSAGES)


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


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_stopped_by_a_limit(name: str) -> None:
    template = ChatTemplate(ENDLESS[name], limits=Limits(steps=20_000, characters=10_000_000))
    with pytest.raises(ChatTemplateError, match=r"stopped|cannot|too deep"):
        template.render(MESSAGES)


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in messages %}{% endfor %}",
        "{% for a in messages if a %}x{% endfor %}",
        "{% macro f(n) %}{% endmacro %}{% for a in messages %}{{ f(a) }}{% endfor %}",
    ],
)
def test_every_round_of_a_loop_counts(text: str) -> None:
    """Not the time that they take: a template that is stopped by the number of its rounds is stopped everywhere."""
    messages = [{"role": "user", "content": "x"}] * 50
    ChatTemplate(text, limits=Limits(steps=150)).render(messages)
    with pytest.raises(ChatTemplateError, match="more than 49 rounds"):
        ChatTemplate(text, limits=Limits(steps=49)).render(messages)


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
    for text in ("{{ environment }}", "{{ context }}", "{{ __builtins__ }}", "{{ count_round }}"):
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
