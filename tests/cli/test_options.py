"""Every option of every command, with its type, default and help: the committed list is what users rely on.

`python tests/cli/test_options.py` writes the list anew; its diff shows what changed for users.
"""

import json
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import typer
from typer.main import get_command

from spanloom.cli.app import app

LISTED = Path(__file__).with_name("options.json")

Listed = dict[str, dict[str, str]]
"""Command → option → what `--help` says about it, and what the parser takes."""


def listed() -> Listed:
    commands: Listed = {}

    def add(command: Any, path: tuple[str, ...], parent: typer.Context | None) -> None:
        context = command.make_context(path[-1], [], parent=parent, resilient_parsing=True)
        text = " ".join((command.help or "").split())
        panel = getattr(command, "rich_help_panel", None)
        heading = f"{panel}: " if isinstance(panel, str) else ""
        commands[" ".join(path)] = {"": heading + text} | dict(
            option_of(parameter, context) for parameter in command.params if parameter.name != "help"
        )
        for name in command.list_commands(context) if hasattr(command, "commands") else ():
            add(command.get_command(context, name), (*path, name), context)

    add(get_command(app), ("spanloom",), None)
    return commands


def option_of(parameter: Any, context: Any) -> tuple[str, str]:
    """The names of an option, and a line with its help, type, default and heading."""
    names = "/".join([*parameter.opts, *parameter.secondary_opts])
    kind = parameter.type_descriptor.annotation
    default = parameter.default
    about = {
        "type": kind.__name__ if isinstance(kind, type) else str(kind),
        "default": default.as_posix() if isinstance(default, Path) else default,
        "multiple": getattr(parameter, "multiple", None),
        "variable": parameter.envvar,
        "heading": getattr(parameter, "rich_help_panel", None),
    }
    shown = " | ".join(parameter.get_help_record(context) or ())
    said = ", ".join(f"{name} {value}" for name, value in about.items() if value is not None and value is not False)
    return names, f"{shown} || {said}"


def test_every_option_is_as_listed() -> None:
    assert listed() == json.loads(LISTED.read_text())


if __name__ == "__main__":
    LISTED.write_text(json.dumps(listed(), indent=1, sort_keys=True, ensure_ascii=False) + "\n")
