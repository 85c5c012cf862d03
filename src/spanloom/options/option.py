"""An option, declared once: the field of a frozen dataclass, `Annotated` with an `Option`.

    @dataclass(frozen=True, kw_only=True)
    class PackingRules:
        block_size: Annotated[int, option("Tokens of a block.", min=2)] = 1024

Commands and steps (`cli/declared.py`) and functions of the Python API (`keywords`) are made of the fields.
A field whose type is such a dataclass stands for the options of that dataclass. Other fields are no options.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """The help text of an option, its names if they are not the field's, and `more`, which typer calls by these names.

    takes   the type on the command line, if it is not the field's; without the option, the field has its default
    read    what was given → the field's value. Raises ValueError for what cannot be read
    """

    help: str
    names: tuple[str, ...]
    takes: Any
    read: Callable[[Any], Any] | None
    more: Mapping[str, Any]


def option(help: str, *names: str, takes: Any = None, read: Callable[[Any], Any] | None = None, **more: Any) -> Option:
    return Option(help, names, takes, read, more)


def place(help: str, *names: str, **more: Any) -> Option:
    """An option that takes a path or a URI."""
    return option(help, *names, metavar="PLACE", **more)


def running(help: str, *names: str, **more: Any) -> Option:
    """An option about how a command runs, which does not change the result."""
    return option(help, *names, rich_help_panel="Running", **more)


def listing(help: str, *names: str, of: Callable[[list[str]], Any] = tuple, **more: Any) -> Option:
    """A repeatable option of names with commas: `--drop a,b --drop c`."""
    return option(help, *names, takes=list[str] | None, read=lambda texts: of(names_in(*texts)), **more)


def names_in(*texts: str) -> list[str]:
    """`"a,b", "c"` → `["a", "b", "c"]`"""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]
