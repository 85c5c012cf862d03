"""The text of `--help`: plain text, parameters under headings, no option name cut at any width.

In: a command with its parameters. Out: its help, as wide as the terminal, at most 80 columns. Lines are wrapped only at
spaces, so that every option and every command can be copied.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

from typer.core import TyperCommand, TyperGroup

from spanloom.errors import SpanloomError
from spanloom.options.config import PRINT_CONFIG, as_yaml
from spanloom.text import visible

_NAMES = 26
"""Columns for names and values. After a longer name the text begins on the next line."""
_COMMAND = re.compile(r"`(spanloom [^`]+)`")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9]+:/")
"""The start of a URI that became a path, in which two slashes are one."""


class HelpCommand(TyperCommand):
    """A command: its text, its examples one per line, arguments, then options by heading (`rich_help_panel`)."""

    def format_help_text(self, _: Any, formatter: Any) -> None:
        _write_text(self.help or "", formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters(self, ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Refuses a URI for an option that takes a path: it would become a folder named `s3:`. Prints the options for
        --print-config, and then runs nothing."""
        for parameter in self.get_params(ctx):
            value = ctx.params.get(parameter.name)
            if isinstance(value, Path) and _URI.match(str(value)):
                raise SpanloomError(
                    f"{parameter.opts[0]} takes a path on this machine, not a URI",
                    where=str(value).replace(":/", "://", 1),
                    remedy="give a local path; options shown with PLACE take gs:// and s3:// too (minio:// is s3:// "
                    "there, with the store's address in AWS_ENDPOINT_URL)",
                )
        if ctx.params.get(PRINT_CONFIG):
            print(visible(as_yaml(ctx)), end="")
            return None
        return super().invoke(ctx)


class HelpGroup(TyperGroup):
    """A group: its text, its options, then its commands by heading."""

    def format_help_text(self, _: Any, formatter: Any) -> None:
        _write_text(self.help or "", formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters(self, ctx, formatter)
        rows = defaultdict(list)
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if not command.hidden:
                first = (command.short_help or command.help or "").partition("\n\n")[0]
                rows[command.rich_help_panel or "Commands"].append((name, first))
        _write_sections(rows, formatter)


def _write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    rows = defaultdict(list)
    for parameter in command.get_params(ctx):
        if (row := parameter.get_help_record(ctx)) is not None:
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            rows[getattr(parameter, "rich_help_panel", None) or kind].append(row)
    _write_sections(rows, formatter)


def _write_sections(sections: dict[str, list[tuple[str, str]]], formatter: Any) -> None:
    for heading, rows in sections.items():
        formatter.write(f"\n{heading}:\n")
        indent = " " * (4 + min(_NAMES, max(len(names) for names, _ in rows)))
        for names, text in rows:
            begin = f"  {names}"
            if len(begin) > formatter.width:  # a list of choices, which may wrap between them
                begin = "\n".join(_wrapped(names.replace("|", " | "), formatter.width, "  ", "    "))
            if len(begin) + 2 > len(indent):
                formatter.write(begin + "\n")
                begin = ""
            _write_wrapped(text, formatter, begin.ljust(len(indent)), indent)


def _write_text(text: str, formatter: Any) -> None:
    """Writes paragraphs. One that begins with `Example` becomes commands to paste, with a backslash at line breaks."""
    for paragraph in text.split("\n\n"):
        formatter.write("\n")
        if not paragraph.startswith("Example"):
            _write_wrapped(paragraph, formatter, "  ", "  ")
            continue
        formatter.write("  Example:\n")
        for command in _COMMAND.findall(" ".join(paragraph.split())):
            lines = _wrapped(command, formatter.width - 2, "    ", "      ")
            formatter.write(" \\\n".join(lines) + "\n")


def _write_wrapped(text: str, formatter: Any, first: str, later: str) -> None:
    for line in _wrapped(text, formatter.width, first, later) or [first.rstrip()]:
        formatter.write(line + "\n")


def _wrapped(text: str, width: int, first: str, later: str) -> Iterable[str]:
    wrapper = TextWrapper(
        width=width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False, break_long_words=False
    )
    return wrapper.wrap(" ".join(text.split()))
