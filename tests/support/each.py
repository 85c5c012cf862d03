"""One test over many values, where each value is a subtest: every failure is reported with its value.

For what needs something that may be missing: then one line is skipped, not one a value.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def each(name: str, values: Iterable[object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """`@each("image", IMAGES)`: the test is called once a value, under the argument `name`; the others are fixtures."""
    values = list(values)
    assert values, f"there is no {name} to try"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        parameters = [each for each in inspect.signature(test).parameters.values() if each.name != name]
        inner = any(each.name == "subtests" for each in parameters)  # the test is over another argument too

        @wraps(test)
        def over_all(*, subtests: pytest.Subtests, **fixtures: Any) -> None:
            if inner:
                fixtures["subtests"] = subtests
            for value in values:
                with subtests.test(**{name: value}):
                    test(**fixtures, **{name: value})

        names = [each.name for each in parameters] + ["subtests"] * (not inner)
        keywords = [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY) for each in names]
        over_all.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
        return over_all

    return decorate
