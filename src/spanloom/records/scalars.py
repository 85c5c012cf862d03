"""Type checks of one value: boolean, integer, number. In Python, True is also the integer 1; in JSON it is not.

In: a JSON value, a NumPy value, or the text of a CSV field. Out: whether it has the type; for a boolean, its value.
"""

from numbers import Integral, Real
from typing import Any, TypeGuard


def truth(value: Any) -> bool | None:
    """The boolean that a JSON boolean or the text of a CSV field represents; None for any other value."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether a value is an integer; True, False and 1.0 are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is an integer or a float, including NaN; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)
