"""`--config FILE` and `--print-config`, of every command with more than `MANY` options.

In: a YAML file whose keys are the option names of the command line. Out: defaults for the options that the command line
does not give; or the values that would be used, as such a file. Values are texts, as on the command line.

    source: data/chat_source
    valid-fraction: 0.3
    drop: [audio, refusal]          a repeatable option, or an argument that takes several
    allow-unknown-sha: true
"""

import difflib
import json
from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from spanloom.errors import OptionError
from spanloom.options.endless import never_ends

MANY = 10
"""A command with more options than this takes them from a file."""

CONFIG, PRINT_CONFIG = "config", "print_config"


def parameters() -> list[Parameter]:
    """The two options, for typer."""
    about: dict[str, Any] = {"rich_help_panel": "Running"}
    file: Any = typer.Option(
        "--config", metavar="FILE", is_eager=True, callback=_read, help="YAML with options by their names.", **about
    )
    shown: Any = typer.Option("--print-config", help="Print the options as such a file, and do nothing.", **about)
    return [
        Parameter(CONFIG, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, file]),
        Parameter(PRINT_CONFIG, Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, shown]),
    ]


def as_yaml(context: Any) -> str:
    """The arguments and options of a parsed command, as a file for `--config`; unset ones are left out."""
    lines = []
    for key, parameter in _keys(context.command).items():
        value = context.params.get(parameter.name)
        if value is None or value == () or value == []:
            continue
        texts = [str(each) for each in value] if isinstance(value, list | tuple) else None
        written: Any = texts if texts is not None else value if isinstance(value, bool | int | float) else str(value)
        lines.append(f"{key}: {json.dumps(written, ensure_ascii=False)}\n")
    return "".join(lines)


def _keys(command: Any) -> dict[str, Any]:
    """Key of the file → the parameter: `valid-fraction`, `map`, and of an argument its name."""
    keys = {}
    for parameter in command.params:
        if parameter.name not in ("help", CONFIG, PRINT_CONFIG):
            names = [name for name in parameter.opts if name.startswith("--")]
            keys[names[0].removeprefix("--") if names else parameter.name] = parameter
    return keys


def _read(context: typer.Context, path: Path | None) -> Path | None:
    """Gives the options of the file to the command, as defaults. Raises OptionError."""
    if path is None or context.resilient_parsing:
        return path
    where = str(path)
    known, values = _keys(context.command), {}
    for key, value in _parsed(path).items():
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0)[0]
            raise OptionError(f"{where}: there is no option {key!r}", remedy=f"the nearest is {near!r}")
        parameter = known[key]
        several = getattr(parameter, "multiple", False) or parameter.nargs != 1
        if isinstance(value, Mapping) or (isinstance(value, list) and not several):
            raise OptionError(f"{where}: {key!r} takes one value", remedy="write it as on the command line")
        if isinstance(value, list) and not all(isinstance(each, str) for each in value):
            raise OptionError(f"{where}: {key!r} takes a list of texts", remedy="write it as on the command line")
        values[parameter.name] = [value] if several and isinstance(value, str) else value
    context.default_map = {**(context.default_map or {}), **values}
    return path


def _parsed(path: Path) -> Mapping[Any, Any]:
    """The keys of a file, without those that have no value. Raises OptionError."""
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise OptionError("--config needs PyYAML", remedy="pip install pyyaml, or 'spanloom[data]'") from None
    if never_ends(path):
        raise OptionError(f"{path} is no regular file", remedy="give another file")
    try:
        # Every scalar stays the text that it is: in YAML, `on` and `no` would be true and false, a date a date.
        read = yaml.load(path.read_text("utf-8"), Loader=yaml.BaseLoader)
    except OSError as fault:
        raise OptionError(f"{path} cannot be read: {fault.strerror}", remedy="give another file") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as fault:
        raise OptionError(f"{path} is not YAML: {fault}", remedy="--print-config shows such a file") from None
    if not isinstance(read, Mapping):
        raise OptionError(f"{path} has no options", remedy="write a line for each option: `valid-fraction: 0.3`")
    return {key: value for key, value in read.items() if value not in ("", "null", "~")}
