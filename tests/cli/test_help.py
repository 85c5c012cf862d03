"""Help pages on a terminal of 80 columns: nothing is wider, no name is cut, every example can be pasted."""

import shlex
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from spanloom.cli import main
from spanloom.cli.app import app
from spanloom.errors import EXIT_USAGE

MOST_LINES = 160
"""Of a help page. A terminal that scrolls back 1,000 lines shows it whole."""


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name in getattr(command, "commands", ()):
        yield from commands(command.commands[name], (*words, name))


COMMANDS = dict(commands(get_command(app)))


@cache
def help_of(words: tuple[str, ...]) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_name_is_whole_no_line_is_wider_than_the_terminal_and_examples_can_be_pasted(
    words: tuple[str, ...],
) -> None:
    page = help_of(words)
    assert max(map(len, page.splitlines())) <= 80
    assert len(page.splitlines()) <= MOST_LINES
    shown = page.replace(",", " ").split()
    for parameter in COMMANDS[words].params:
        for name in (*parameter.opts, *parameter.secondary_opts) if parameter.param_type_name == "option" else ():
            assert name in shown
    for name in getattr(COMMANDS[words], "commands", ()):
        assert name in shown
    check_examples(COMMANDS[words].help or "", page)


def check_examples(text: str, page: str) -> None:
    """Examples are commands with options that exist."""
    assert ("Example" in text) == ("  Example:\n" in page)
    if "Example" not in text:
        return
    block = page.partition("  Example:\n")[2].partition("\n\n")[0].replace("\\\n", " ")
    examples = [shlex.split(line) for line in block.splitlines()]
    assert examples
    for program, *example in examples:
        assert program == "spanloom"
        depth = max(n for n in range(len(example) + 1) if tuple(example[:n]) in COMMANDS)
        known = {name for parameter in COMMANDS[tuple(example[:depth])].params for name in parameter.opts}
        assert {word for word in example if word.startswith("-")} <= known


def test_options_are_grouped() -> None:
    """The two longest pages have headings; what only concerns how a command runs comes last."""
    headings = [line for line in help_of(("build",)).splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == [
        "Options:",
        "Conversations (not SYNTH):",
        "For a model (--model):",
        "What a model's template cannot take:",
        "How much, and for which split:",
        "Running:",
    ]


@pytest.mark.parametrize(
    ("words", "expected"), [("spanloom bui", "build"), ("spanloom build --valid-f", "--valid-fraction")]
)
def test_a_shell_completes(words: str, expected: str) -> None:
    environment = {"_SPANLOOM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = CliRunner().invoke(app, [], env=environment, prog_name="spanloom")
    assert expected in result.output.split()


@pytest.mark.parametrize("words", [words for words in COMMANDS if hasattr(COMMANDS[words], "commands")], ids=" ".join)
def test_a_group_without_a_command_shows_its_help(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["spanloom", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    shown = capsys.readouterr()
    assert stop.value.code == EXIT_USAGE
    assert not shown.out
    assert all(
        name in shown.err.split() for name in COMMANDS[words].commands if not COMMANDS[words].commands[name].hidden
    )
