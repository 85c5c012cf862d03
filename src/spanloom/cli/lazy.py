"""Commands that load when they run: `spanloom build` imports the file of `build` and no other file.

In: a typer app, and for each file the commands that it defines. Out: the app creates a group that imports a file and
builds a command when the command is run or listed. typer itself builds all commands of all apps before it runs one,
which takes longer than its own import.
"""

from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command, get_command_name, get_group

from spanloom.cli.help import HelpCommand, HelpGroup


def load_lazily(app: typer.Typer, files: Mapping[str, Sequence[str]], *, options_in: str | None = None) -> None:
    """Makes `app` import and build its commands when they run.

    files: module below `spanloom.cli` → the commands that it registers with `app`, in the order of `--help`.
    options_in: the module that registers the callback of `app`, if `app` has its own options.
    """
    file_of = {name: file for file, names in files.items() for name in names}

    class LazyGroup(HelpGroup):
        def __init__(self, *, commands: Mapping[str, Any], **attributes: Any) -> None:
            super().__init__(**attributes)

            def load(name: str) -> Any:
                return _load(app, file_of[name], name)

            # `commands` also has commands whose file is imported already, as typer builds them: without help classes.
            groups = {name: group for name, group in commands.items() if name not in file_of}
            self.commands = _Commands({**dict.fromkeys(file_of), **groups}, load)

        def make_context(self, *arguments: Any, **named: Any) -> Any:
            if options_in is not None:
                import_module(f"spanloom.cli.{options_in}")
                group = get_group(app)
                self.params, self.callback = group.params, group.callback
            return super().make_context(*arguments, **named)

    app.info.cls = LazyGroup


class _Commands(UserDict[str, Any]):
    """Name → command; None before its first use."""

    def __init__(self, commands: Mapping[str, Any], load: Callable[[str], Any]) -> None:
        super().__init__(commands)
        self._load = load

    def __getitem__(self, name: str) -> Any:
        command = super().__getitem__(name)
        if command is None:
            command = self[name] = self._load(name)
        return command


def _load(app: typer.Typer, file: str, name: str) -> Any:
    """The command of an app, from the file that registers it."""
    import_module(f"spanloom.cli.{file}")
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.registered_commands = [
        command
        for command in app.registered_commands
        if command.callback and name == (command.name or get_command_name(command.callback.__name__))
    ]
    for command in alone.registered_commands:
        command.cls = HelpCommand
    return get_command(alone)
