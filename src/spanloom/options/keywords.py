"""A function of one object of options → the same as a function of keywords, for the Python API.

In: a dataclass of options and a function of it. Out: a function with the fields as its parameters, which type checkers
and editors show with their types and defaults.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from types import UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from spanloom.errors import OptionError
from spanloom.options.option import check_number, check_places, names_in, option_of

Given = ParamSpec("Given")
Options = TypeVar("Options")
Result = TypeVar("Result")


def by_keywords(options: Callable[Given, Options]) -> Callable[[Callable[[Options], Result]], Callable[Given, Result]]:
    """Makes a function of one object of options a function of the object's fields, with their types and defaults."""

    def join(function: Callable[[Options], Result]) -> Callable[Given, Result]:
        @wraps(function)
        def called(*given: Given.args, **named: Given.kwargs) -> Result:
            made = options(*given, **named)
            _check(made)
            return function(made)

        fields, hints = inspect.signature(options), get_type_hints(options)
        called.__signature__ = fields.replace(  # type: ignore[attr-defined]
            parameters=[field.replace(annotation=hints[name]) for name, field in fields.parameters.items()],
            return_annotation=inspect.signature(function).return_annotation,
        )
        return called

    return join


def check_given_places(places: Mapping[str, Any]) -> None:
    """Raises OptionError for an empty text in the place of a path or a URI."""
    try:
        check_places(places)
    except ValueError as fault:
        raise OptionError(str(fault), remedy='give a path or a URI; the current folder is "."') from None


def _is_place(hint: Any) -> bool:
    """Whether a value of this type may be a path."""
    declared = option_of(hint)
    return "Path" in str(hint) or (declared is not None and declared.more.get("metavar") == "PLACE")


def _check(options: Any) -> None:
    """Holds numbers to the limits of their options, as the command line does, and lists to be no text, of which each
    letter would be a name. Raises OptionError.
    """
    plain = get_type_hints(type(options))
    for name, hint in ((field.name, plain[field.name]) for field in fields(options)):
        value, kinds = getattr(options, name), get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if isinstance(value, str) and str not in kinds and any(get_origin(kind) is Sequence for kind in kinds):
            raise OptionError(f"{name}: {value!r} is a text, not a list", remedy=f"write {name}={names_in(value)}")
    hints = get_type_hints(type(options), include_extras=True)
    named = {field.name: getattr(options, field.name) for field in fields(options) if _is_place(hints[field.name])}
    check_given_places(named)
    for field in fields(options):
        declared, value = option_of(hints[field.name]), getattr(options, field.name)
        if declared is None or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        low, high = declared.more.get("min", -math.inf), declared.more.get("max", math.inf)
        try:
            check_number(value)
            if not low <= value <= high:  # NaN is in no range
                raise ValueError(f"{value} is not in the range {low} to {high}")
        except ValueError as fault:
            raise OptionError(f"{field.name}: {fault}", remedy="give another number") from None
