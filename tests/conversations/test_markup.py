"""What chat templates write is found in an answer by its shape; ordinary prose, code and HTML are text."""

import re
from pathlib import Path

import jinja2
import pytest

from spanloom.conversations.reading.markup import THINK_TAGS, may_hold_markup, template_mark
from support.model_material import ROOT
from support.requirements import MODELS, absent

CONTROL = re.compile(
    r"<\|[^<>\n]{1,40}?\|>|<\|[A-Za-z_/]{2,30}>|<[A-Za-z_/]{2,30}\|>|</?｜[^<>\n]{1,40}?｜>?|〈\|[^〉]*\|〉|<</?SYS>>"
    r"|\[/?[A-Z][A-Z_]{2,30}\]|</?[A-Za-z][\w:.-]{0,40}>|<function=|<parameter=|<invoke name="
)
"""Anything in the texts of a template that may be a token, a tag or a name in brackets."""

ORDINARY = frozenset(
    {
        # Media, names of XML, places for a value in instructions, sections of a default system text.
        "[IMG]", "[ARGS]", "<image>", "<video>", "<s>", "<sep>", "<user>", "<system>", "<role>", "<tool>", "<any>",
        "<name>", "<type>", "<enum>", "<description>", "<required>", "<response>", "<result>", "<results>",
        "<documents>", "<functions>", "<function>", "<parameters>", "<parameter>", "<param>", "<tools>", "<invoke>",
        "<parameter=", "<args-json-object>", "<args-json-object-1>", "<args-dict>", "<args-dict-1>",
        "<args-dict-2>", "<function-name>", "<function-name-1>", "<function-name-2>", "<tool-name>",
        "<tool-name-1>", "<tool-call-id>", "<tools-json-object>", "<IMPORTANT>", "<ROLE>", "<CODE_QUALITY>",
        "<EFFICIENCY>", "<ENVIRONMENT_SETUP>", "<FILE_SYSTEM_GUIDELINES>", "<PROBLEM_SOLVING_WORKFLOW>",
        "<PULL_REQUESTS>", "<SECURITY>", "<TROUBLESHOOTING>", "<VERSION_CONTROL>", "<assistant_guidelines>",
        "<available_modalities>", "<function_usage>", "<instruction_priority>", "<memory_guidelines>",
        "<role_description>", "<context>", "<list-of-tools>",
    }
)  # fmt: skip
"""What templates write too, and what is no markup by itself. Of `CONTROL`, all else is."""
PAIRS = ("tools", "functions", "function", "invoke", "parameters", "parameter", "tool")


def literals(template: str) -> str:
    """The texts that a template can write: its data, and the strings in its code."""
    lexed = jinja2.Environment().lex(template)
    return "\n".join(value for _, kind, value in lexed if kind in ("data", "string"))


@pytest.fixture
def templates() -> list[Path]:
    """160 published chat templates."""
    return sorted((ROOT / "templates").glob("*.jinja")) or absent(MODELS)


@pytest.mark.beside
def test_every_mark_of_published_templates_is_found(templates: list[Path]) -> None:
    assert len(templates) >= 160
    thinks = {tag for pair in THINK_TAGS for tag in pair}
    marks: dict[str, str] = {}
    for path in templates:
        for match in CONTROL.finditer(literals(path.read_text("utf-8"))):
            marks.setdefault(match[0], path.name)
    assert len(marks) > 250
    missed = {
        mark: name
        for mark, name in marks.items()
        if mark.replace("</", "<").replace("[/", "[") not in ORDINARY
        and not any(tag in mark or mark in tag for tag in thinks)
        and template_mark(f"Yes. {mark} So.") is None
    }
    assert missed == {}


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_of_tags_is_markup_where_both_are_there(name: str) -> None:
    assert template_mark(f"<{name}>1</{name}>") == f"<{name}>" or template_mark(f"</{name}>") == f"</{name}>"
    assert template_mark(f"The element <{name}> is new.") is None
    assert may_hold_markup(f"<{name}>1</{name}>")


@pytest.mark.parametrize(
    "text",
    [
        "let f = xs |> List.map g <| 3;",
        "x <|> y",
        "parser = a <|> b |> c",
        "if (a <b|>c) …",
        "<p>Hi <b>you</b></p><img src='x'/><s>old</s>",
        "<user><name>A</name></user>",
        "<response><result>1</result></response>",
        "Usage: tool [OPTIONS] COMMAND [ARGS]...",
        "[CODE]x[/CODE] [B]y[/B]",
        "std::vector<std::pair<int, int>> v; a[i][j]",
        "def f(x: list[T]) -> dict[K, V]: ...",
        "see [1], [INSTALL] and [NOTE]",
        "SELECT * FROM a WHERE b < 1 OR c > 2",
        "<tool id='1'/>",
        "|---|---|",
    ],
)
def test_prose_code_and_html_are_text(text: str) -> None:
    assert template_mark(text) is None


@pytest.mark.parametrize(
    "text",
    [
        '<｜DSML｜function_calls><｜DSML｜invoke name="f"></｜DSML｜invoke>',
        "<|channel>thought\nx<channel|>A",
        "A<turn|>",
        '<minimax:tool_call>\n<invoke name="f">',
        "<|tool_call_start|>[f(a=1)]<|tool_call_end|>",
        "<|START_RESPONSE|>A<|END_RESPONSE|>",
        "A</s>",
        "[SYSTEM_PROMPT]x[/SYSTEM_PROMPT]",
        "[PLAN]x[/PLAN]",
        'f[ARGS]{"a": 1}',
        "<TOOLCALL>[]</TOOLCALL>",
        '<atem:invoke name="f">',
        "<tool_call name='f'>",
        "<co: 0>A</co: 0>",
    ],
)
def test_what_models_write_around_calls_and_turns_is_markup(text: str) -> None:
    assert template_mark(text) is not None
    assert may_hold_markup(text)
