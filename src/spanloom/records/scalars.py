"""What one value of a record is: true or false, an integer, a number. For Python, true is the integer 1; for JSON not.

In: a JSON value, a value of numpy, or the text of a CSV field. Out: whether it is one.
"""

from numbers import Integral, Real
from typing import Any, TypeGuard


def truth(value: Any) -> bool | None:
    """A JSON boolean, or one as a CSV file has it, as text; None for any other value."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether a value is an integer; true and false are none, nor is 1.0."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is an integer or a float, NaN too; true and false are none."""
    return isinstance(value, Real) and not isinstance(value, bool)
