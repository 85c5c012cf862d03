"""Commands whose parameters are dataclasses of options (`spanloom.options`).

In: a function, such as `def pack(options: Pack)`, or one dataclass of all options of a command, such as `class Pack` of
`cli/chat.py`, which `pack` of `cli/run/chat.py` takes. Out: the function that typer reads, with a parameter for each
option. What a dataclass is for loads when the command runs: `--help` and a wrong option wait for no library.
"""

import re
from collections.abc import Callable
from dataclasses import MISSING, is_dataclass, replace
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import typer

from spanloom.options import config
from spanloom.options.option import Option, check_number, option, option_of
from spanloom.options.overwriting import check_outputs

Switch = Literal["0", "1"]
"""A switch as a pipeline's parameter."""


class Commands(typer.Typer):
    """A typer app whose commands may take dataclasses of options."""

    def command(self, *names: Any, switches: bool = False, **about: Any) -> Callable[[Any], Any]:
        return _spread_for(super().command(*names, **about), switches)

    def callback(self, *names: Any, **about: Any) -> Callable[[Any], Any]:
        return _spread_for(super().callback(*names, **about), switches=False)


def _spread_for(join: Callable[[Any], Any], switches: bool) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        join(spread(function, switches=switches))
        return function

    return register


def switch(help: str, *names: str) -> Option:
    """A bool that a pipeline passes as 0 or 1."""
    return option(help, *names, takes=Switch, read="1".__eq__)


def spread(function: Callable[..., Any], *, switches: bool = False) -> Callable[..., Any]:
    """The function with the options in the place of their dataclasses, whose bools become switches if `switches`."""
    taken: dict[str, _Taken] = {}
    groups: dict[str, tuple[Any, list[str]]] = {}
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in signature(function).parameters.items():
        if not is_dataclass(hints[name]):
            taken[name] = _taken(name, hints[name], parameter.default, switches=False)
            continue
        inner = get_type_hints(hints[name], include_extras=True)
        of = {each.name: each for each in signature(hints[name]).parameters.values() if option_of(inner[each.name])}
        taken |= {each: _taken(each, inner[each], of[each].default, switches=switches) for each in of}
        groups[name] = hints[name], [*of]

    @wraps(function, updated=())
    def called(**given: Any) -> Any:
        given = {name: value for name, value in given.items() if name in taken}
        read = {name: taken[name].read(value) for name, value in given.items()}
        try:
            check_outputs(read, [name for name in read if taken[name].writes])
        except ValueError as fault:
            raise typer.BadParameter(str(fault)) from None
        values = {name: value for name, value in read.items() if value is not MISSING}
        own = {name: value for name, value in values.items() if name in hints}
        made = {
            name: group(**{each: values[each] for each in of if each in values}) for name, (group, of) in groups.items()
        }
        wanted = function(**own, **made)
        return does(function)(wanted) if isinstance(function, type) else wanted

    parameters = [each.parameter for each in taken.values()]
    if len(parameters) > config.MANY and not switches:
        parameters += config.parameters()
    called.__name__ = _name_of(function)
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def does(command: type) -> Callable[[Any], None]:
    """The function of `spanloom.cli.run` that does what a dataclass of options is declared for."""
    module = import_module(command.__module__.replace(".cli.", ".cli.run."))
    return getattr(module, _name_of(command))  # type: ignore[no-any-return]


def _name_of(declared: Callable[..., Any]) -> str:
    """`PrintBlend` → `print_blend`"""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", declared.__name__).lower()


class _Taken(NamedTuple):
    """The parameter that typer reads; what was given → the value, or MISSING if the function's default applies."""

    parameter: Parameter
    read: Callable[[Any], Any]
    writes: bool = False


def _taken(name: str, hint: Any, default: Any, *, switches: bool) -> _Taken:
    declared = option_of(hint)
    if declared is None:
        return _Taken(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint), lambda value: value)
    kind = get_args(hint)[0]
    if switches and declared.in_steps is not None:
        declared = declared.in_steps
    elif switches and kind is bool and declared.more.get("rich_help_panel") != "Running":
        names = tuple(name.partition("/")[0] for name in declared.names)  # not `--drop-lossless`
        declared = replace(switch(declared.help, *names), more=declared.more)
    if declared.takes is not None:
        kind = declared.takes
        if default is not Parameter.empty or declared.given is not None:
            default = str(int(default)) if kind is Switch else declared.given

    def read(value: Any) -> Any:
        if declared.takes is not None and value is None:
            return MISSING
        try:
            check_number(value)
            return value if declared.read is None else declared.read(value)
        except ValueError as fault:
            names = (*declared.names, f"--{name.replace('_', '-')}")
            raise typer.BadParameter(str(fault), param_hint=names[0]) from None

    annotated: Any = Annotated[kind, typer.Option(*declared.names, help=declared.help, **declared.more)]
    parameter = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotated)
    return _Taken(parameter, read, declared.writes)
