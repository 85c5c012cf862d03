"""Commands whose parameters are dataclasses of options (`spanloom.options`).

In: a function, such as `def pack(options: Pack)`. Out: the function that typer reads, with a parameter for each option.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import typer

from spanloom.options.option import Option, option

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
    hints = _hints(function)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    taken: dict[str, _Taken] = {}
    for name, parameter in signature(function).parameters.items():
        if name in groups:
            taken |= {each: _taken(each, *of, switches=switches) for each, *of in declared(groups[name])}
        else:
            taken[name] = _taken(name, hints[name], parameter.default)

    @wraps(function)
    def called(**given: Any) -> Any:
        values = {name: taken[name].read(value) for name, value in given.items()}
        values = {name: value for name, value in values.items() if value is not MISSING}
        own = {name: values[name] for name in hints if name in values}
        return function(**own, **{name: made(group, values) for name, group in groups.items()})

    parameters = [each.parameter for each in taken.values()]
    called.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def declared(options: Any) -> Iterator[tuple[str, Any, Any]]:
    """The options of a dataclass, in the order of its parameters: name, type, default; Parameter.empty for none."""
    hints = _hints(options)
    for field in sorted(fields(options), key=lambda field: bool(field.kw_only)):
        hint = hints[field.name]
        if is_dataclass(hint):
            yield from declared(hint)
        elif _option(hint) is not None or _is_argument(hint):
            required = field.default is MISSING and field.default_factory is MISSING
            default = None if field.default is MISSING else field.default
            yield field.name, hint, Parameter.empty if required else default


def made(options: Any, values: Mapping[str, Any]) -> Any:
    """The object of a dataclass from the values by name, of which it takes its own."""
    hints = _hints(options)
    arguments = {}
    for field in fields(options):
        hint = hints[field.name]
        if is_dataclass(hint):
            arguments[field.name] = made(hint, values)
        elif field.name in values:
            arguments[field.name] = values[field.name]
    return options(**arguments)


class _Taken(NamedTuple):
    parameter: Parameter
    read: Callable[[Any], Any]
    """What was given → the value, or MISSING if the default applies."""


def _taken(name: str, hint: Any, default: Any, *, switches: bool = False) -> _Taken:
    """The parameter that typer reads, and how its value is read."""
    declared = _option(hint)
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if declared is None:
        return _Taken(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint), lambda value: value)
    if switches and declared.in_steps is not None:
        declared = declared.in_steps
    elif switches and kind is bool and declared.more.get("rich_help_panel") != "Running":
        names = tuple(name.partition("/")[0] for name in declared.names)  # not `--drop-lossless`
        declared = replace(switch(declared.help, *names), more=declared.more)
    if declared.takes is not None:
        kind = declared.takes
        if default is not Parameter.empty or declared.given is not None:
            default = str(int(default)) if kind is Switch else declared.given
    info = typer.Option(*declared.names, help=declared.help, **declared.more)

    def read(value: Any) -> Any:
        if declared.takes is not None and value is None:
            return MISSING
        if declared.read is None:
            return value
        try:
            return declared.read(value)
        except ValueError as fault:
            raise typer.BadParameter(
                str(fault), param_hint=(*declared.names, f"--{name.replace('_', '-')}")[0]
            ) from None

    annotated: Any = Annotated[kind, info]
    return _Taken(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotated), read)


def _option(hint: Any) -> Option | None:
    return next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Option)), None)


def _is_argument(hint: Any) -> bool:
    return any(isinstance(each, typer.models.ParameterInfo) for each in getattr(hint, "__metadata__", ()))


@cache
def _hints(declaring: Any) -> dict[str, Any]:
    """The types of a class's fields or of a function's parameters, with what they are annotated with."""
    return {name: hint for name, hint in get_type_hints(declaring, include_extras=True).items() if name != "return"}
