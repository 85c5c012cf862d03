"""Traced texts: every operation gives the text that `str` gives, and marks are true or absent."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.tokenizers.chat_template import ChatTemplate
from spanloom.tokenizers.traced_text import Mark, TracedText, joined, json_text, marks_of, percent_formatted, traced

TEXTS = st.text(st.sampled_from(' \n\tabcXé🙂"\\<&%{}'), max_size=12)

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "strip": lambda text: text.strip(),
    "strip of letters": lambda text: text.strip("ab"),
    "lstrip": lambda text: text.lstrip(),
    "rstrip": lambda text: text.rstrip("\n"),
    "slice": lambda text: text[1:-1],
    "step": lambda text: text[::-1],
    "join": lambda text: ", ".join([text, text]),
    "joins others": lambda text: text.join(["x", "y", "z"]),
    "add": lambda text: "<" + text + ">",
    "multiply": lambda text: 2 * text,
    "replace": lambda text: text.replace("a", "--"),
    "replace by it": lambda text: "x-y".replace("-", text),
    "replace nothing": lambda text: text.replace("", "."),
    "split": lambda text: text.split("a"),
    "split at white space": lambda text: text.split(),
    "split once": lambda text: text.split("a", 1),
    "rsplit": lambda text: text.rsplit("a", 1),
    "splitlines": lambda text: text.splitlines(),
    "partition": lambda text: text.partition("b"),
    "rpartition": lambda text: text.rpartition("b"),
    "prefix": lambda text: text.removeprefix("a"),
    "suffix": lambda text: text.removesuffix("a"),
    "upper": lambda text: text.upper(),
    "title": lambda text: text.title(),
    "center": lambda text: text.center(15, "*"),
    "ljust": lambda text: text.ljust(15),
    "rjust": lambda text: text.rjust(15),
    "expandtabs": lambda text: text.expandtabs(4),
    "percent": lambda text: percent_formatted("%s is %d", (text, 3)),
    "letters": lambda text: list(text),
    "hash": lambda text: {text: 1}[str(text)],
    "compare": lambda text: (text == "a", text < "b", "a" in text, len(text), text.startswith("a")),
}


def _check_marks(value: Any, field: str) -> None:
    """An exact mark says which characters of the field stand there."""
    if isinstance(value, TracedText):
        for start, end, number, first, last, exact in marks_of(value):
            assert number == 5
            if exact and end - start == last - first:
                assert value[start:end] == field[first:last]
    elif isinstance(value, list | tuple):
        for item in value:
            _check_marks(item, field)


@pytest.mark.parametrize("name", OPERATIONS)
@given(text=TEXTS)
def test_an_operation_gives_the_text_that_str_gives(name: str, text: str) -> None:
    operation = OPERATIONS[name]
    made = operation(traced(text, 5))
    assert made == operation(text)
    _check_marks(made, text)


@given(TEXTS, TEXTS, st.booleans(), st.sampled_from([None, 0, 2]), st.booleans())
def test_json_is_that_of_json_dumps_and_remembers_each_letter(
    left: str, right: str, ascii: bool, indent: int | None, keys: bool
) -> None:
    plain = {"first": left, "rest": [1, None, {"of it": right, "d": True}], left or "k": 0.5}
    value = {"first": traced(left, 0), "rest": [1, None, {"of it": traced(right, 1), "d": True}], left or "k": 0.5}
    text = json_text(value, ensure_ascii=ascii, indent=indent, sort_keys=keys)
    assert text == json.dumps(plain, ensure_ascii=ascii, indent=indent, sort_keys=keys)
    for number, field in enumerate((left, right)):
        covered = (
            "".join(
                json.loads(f'"{text[mark[0] : mark[1]]}"')
                for mark in text._marks
                if mark[2] == number  # type: ignore
            )
            if field
            else ""
        )
        assert covered == field


def test_marks_of_joined_texts_are_where_the_texts_are() -> None:
    text = joined(["ab", traced("cde", 3), "", traced("f", 4)])
    assert text == "abcdef"
    assert marks_of(text) == ((2, 5, 3, 0, 3, True), (5, 6, 4, 0, 1, True))
    assert marks_of(text[3:]) == ((0, 2, 3, 1, 3, True), (2, 3, 4, 0, 1, True))
    assert marks_of("plain") == ()


def test_changed_letters_are_of_the_field_but_not_as_they_were() -> None:
    assert [mark[5] for mark in marks_of(traced("abc", 1).upper())] == [False]


WHOLE = [
    "{{ text }}",
    "{{ '<' ~ text ~ '>' }}",
    "{{ '<' + text }}",
    "{{ text | trim }}",
    "{{ text | string }}",
    "{{ text | safe }}",
    "{{ text | default('x') }}",
    "{{ ['a', text] | join(', ') }}",
    "{{ ', '.join(['a', text]) }}",
    "{{ 'a-b' | replace('-', text) }}",
    "{{ 'a-b'.replace('-', text) }}",
    "{{ '%s!' | format(text) }}",
    "{{ '%s!' % text }}",
    "{{ 'x {} y'.format(text) }}",
    "{{ 'x {t} y'.format(t=text) }}",
    "{{ text.split('</think>')[-1].lstrip('\\n') }}",
    "{{ text[0:] }}",
    "{{ text | tojson }}",
    "{{ {'a': [text]} | tojson(indent=2) }}",
    "{% macro m(t) %}[{{ t }}]{% endmacro %}{{ m(text) }}",
    "{% set block %}[{{ text }}]{% endset %}{{ block }}",
    "{% set ns = namespace(t='') %}{% for i in [1] %}{% set ns.t = ns.t + text %}{% endfor %}{{ ns.t }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}{{ text }}{% endcall %}",
    "{% filter trim %} {{ text }} {% endfilter %}",
    "{% generation %}{{ text }}{% endgeneration %}",
    "{% for key, value in {'k': text}.items() %}{{ key }}={{ value }}{% endfor %}",
    "{% if text is string and text | length > 2 %}{{ text }}{% endif %}",
]


@pytest.mark.parametrize("template", WHOLE)
def test_a_template_keeps_marks(template: str) -> None:
    compiled = ChatTemplate(template)
    plain = compiled.render([], text="one two")
    text = compiled.render_traced([], text=traced("one two", 7))
    assert text == plain
    assert "one two" in text
    at = text.index("one two")
    assert marks_of(text) == ((at, at + 7, 7, 0, 7, True),)


@pytest.mark.parametrize(
    "template",
    ["{{ text | title }}", "{{ text | pprint }}", "{{ [text] }}", "{{ text | wordwrap(2) }}", "{{ text | upper }}"],
)
def test_where_marks_are_lost_it_is_seen(template: str) -> None:
    compiled = ChatTemplate(template)
    text = compiled.render_traced([], text=traced("one two", 7))
    assert text == compiled.render([], text="one two")
    whole: tuple[Mark, ...] = tuple(mark for mark in marks_of(text) if mark[5] and mark[4] - mark[3] == 7)
    assert whole == ()
