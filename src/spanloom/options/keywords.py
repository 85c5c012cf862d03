"""A function of one object of options → the same as a function of keywords, for the Python API.

In: a dataclass of options and a function of it. Out: a function with the fields as its parameters, which type checkers
and editors show with their types and defaults.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, get_type_hints

Given = ParamSpec("Given")
Options = TypeVar("Options")
Result = TypeVar("Result")


def by_keywords(options: Callable[Given, Options]) -> Callable[[Callable[[Options], Result]], Callable[Given, Result]]:
    """Makes a function of one object of options a function of the object's fields, with their types and defaults."""

    def join(function: Callable[[Options], Result]) -> Callable[Given, Result]:
        @wraps(function)
        def called(*given: Given.args, **named: Given.kwargs) -> Result:
            return function(options(*given, **named))

        fields, hints = inspect.signature(options), get_type_hints(options)
        called.__signature__ = fields.replace(  # type: ignore[attr-defined]
            parameters=[field.replace(annotation=hints[name]) for name, field in fields.parameters.items()],
            return_annotation=inspect.signature(function).return_annotation,
        )
        return called

    return join
