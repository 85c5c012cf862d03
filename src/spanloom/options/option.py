"""An option, declared once: the field of a frozen dataclass, `Annotated` with an `Option`.

    @dataclass(frozen=True, kw_only=True)
    class PackingRules:
        block_size: Annotated[int, option("Tokens of a block.", min=2)] = 1024

Commands and steps (`cli/declared.py`) and functions of the Python API (`keywords`) are made of the fields.
Other fields are no options.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson


@dataclass(frozen=True, kw_only=True)
class Option:
    """The help of an option, its names if they are not the field's, and `more`, which typer calls by these names.

    takes     the type on the command line, if it is not the field's
    given     its default there; None: the field's default
    read      a value of this type → the field's value. Raises ValueError for what cannot be read
    writes    whether it is a file that the command writes
    in_steps  the option in steps of pipelines, whose parameters are texts; a bool is a switch there, 0 or 1
    """

    help: str
    names: tuple[str, ...] = ()
    takes: Any = None
    given: Any = None
    read: Callable[[Any], Any] | None = None
    writes: bool = False
    in_steps: "Option | None" = None
    more: Mapping[str, Any] = field(default_factory=dict)


def option(help: str, *names: str, **about: Any) -> Option:
    own = {name: about.pop(name) for name in ("takes", "given", "read", "writes", "in_steps") if name in about}
    return Option(help=help, names=names, more=about, **own)


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


def values_in(texts: list[str]) -> dict[str, Any]:
    """`["a=1", "b=x"]` → `{"a": 1, "b": "x"}`. Raises ValueError if there is no `=`."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"{text!r} is not KEY=VALUE")
        try:
            values[name] = orjson.loads(value)
        except orjson.JSONDecodeError:
            values[name] = value
    return values


def option_of(hint: Any) -> Option | None:
    """The option in the metadata of an annotation, if there is one."""
    return next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Option)), None)


def check_places(places: Mapping[str, Any]) -> None:
    """Raises ValueError for a place that is the empty text: as a path it would be the current folder. `places`: by the
    names of their parameters; a value may be several places."""
    for name, value in places.items():
        if value == "" or (isinstance(value, list | tuple) and "" in value):
            raise ValueError(f"{name} is an empty text, not a place")


def check_number(value: Any) -> None:
    """Raises ValueError for a whole number that takes more than 64 bits: no manifest can hold it."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("this number takes more than 64 bits")


def as_json(help: str, name: str, kind: type) -> Option:
    """An option that takes a JSON list or object."""

    def read(text: str) -> Any:
        try:
            value = json.loads(text or "null")
        except ValueError as fault:
            raise ValueError(f"this is not JSON: {fault}") from None
        value = kind() if value is None else value
        if not isinstance(value, kind):
            raise ValueError(f"give a JSON {'list' if kind is list else 'object'}")
        return value

    return option(help, name, metavar="JSON", takes=str, given=json.dumps(kind()), read=read)
