"""The reference of all commands, made from their options: `reference/cli.md` of the site.

In: the commands of `spanloom.cli.app`. Out: Markdown, a heading for each command and a table of its options.
"""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from spanloom.cli.app import app


def commands_page() -> str:
    lines = ["# Every command", "", "Made from the options themselves. `spanloom COMMAND --help` prints the same.", ""]
    for path, command, context in _commands(get_command(app), ("spanloom",), None):
        lines += [f"## {' '.join(path)}", "", *_text(command.help or "").splitlines(), ""]
        rows = [_row(option.get_help_record(context)) for option in command.params if option.name != "help"]
        rows = [row for row in rows if row]
        if rows:
            lines += ["| option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _commands(command: Any, path: tuple[str, ...], parent: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    context = command.make_context(path[-1], [], parent=parent, resilient_parsing=True)
    yield path, command, context
    for name in command.list_commands(context) if hasattr(command, "commands") else ():
        yield from _commands(command.get_command(context, name), (*path, name), context)


def _text(text: str) -> str:
    """Help text with an example as a block of its own."""
    return "\n".join(line.strip() for line in text.splitlines())


def _row(record: tuple[str, str] | None) -> str:
    if record is None:
        return ""
    name, meaning = (" ".join(part.split()).replace("|", r"\|") for part in record)
    # A word in angle brackets would be taken as HTML, so it is escaped.
    return f"| `{name}` | {meaning.replace('<', '&lt;')} |"
