"""Expressions of what a rendering reads, as tuples; their Python functions.

In: tuples such as `("get", ("M", (0, (("i", 1),))), "content")`, the content of message i. Out: functions of a
conversation that evaluate them. The first item of a tuple is its kind. A linear form is
`(constant, ((atom, factor), …))`, over `i`, the place of the message, `n`, the number of messages, and expressions
whose values are whole numbers.

    ("k", value, type)   a constant               ("M", form)          a message
    ("T",)               the tools                ("get", e, key)      an item
    ("m", name, e, …)    a method of a text       ("json", e, options) JSON
    ("cat", parts)       texts one after another  ("ns", slot)         an attribute of a namespace
    ("sub", number, e)   a nested loop over e     ("x", depth, part)   its item, the place of it, their number
"""

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

Expression = tuple[Any, ...]
Form = tuple[int, tuple[tuple[Any, int], ...]]

Evaluate = Callable[..., Any]
"""A function of (messages, message, i, n, state, tools, states after earlier loops, items of nested loops)."""

PLACE: Form = (0, (("i", 1),))
COUNT: Form = (0, (("n", 1),))
TOOLS: Expression = ("T",)
ITEM, AT, SIZE = range(3)


class Unloggable(Exception):
    """A template does what no rule covers: the value cannot be logged."""


class Diverged(Exception):
    """Two renderings with equal outcomes made different tests: a test was not logged."""


class UnknownPath(Exception):
    """A conversation whose outcomes no rendering has had."""


class Undefined:
    """Stands for an undefined value in a state."""


def form_of(constant: int, **factors: int) -> Form:
    return constant, tuple(sorted((atom, factor) for atom, factor in factors.items() if factor))


def added(left: Form, right: Form, sign: int = 1) -> Form:
    """left + sign * right."""
    factors = dict(left[1])
    for atom, factor in right[1]:
        factors[atom] = factors.get(atom, 0) + sign * factor
    return left[0] + sign * right[0], tuple(sorted(((a, f) for a, f in factors.items() if f), key=repr))


def scaled(form: Form, factor: int) -> Form:
    return (form[0] * factor, tuple((atom, each * factor) for atom, each in form[1])) if factor else (0, ())


def code(value: Any) -> str:
    """The type of a value as a letter. Booleans and null are values of their own."""
    kind = type(value)
    if kind is str:
        return "s"
    if kind is bool:
        return "T" if value else "F"
    if value is None:
        return "N"
    if kind is int:
        return "i"
    if kind is float:
        return "f"
    if kind is list or kind is tuple:
        return "l"
    return "U" if value is Undefined else "d"


def types_by_key(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple([(key, code(value)) for key, value in values.items()])


def types_of(values: Any) -> str:
    return "".join([code(value) for value in values])


def pinned(value: Any) -> Any:
    """A value as the outcome of a test: hashable, and different for 1, 1.0 and True."""
    kind = type(value)
    if kind is str or value is None:
        return value
    if kind in (int, float, bool):
        return kind.__name__, repr(value)
    return "json", json.dumps(value, ensure_ascii=False)


# --- Expressions → Python ---
_PLAIN_JSON = {"ensure_ascii": False}
_TESTS: Mapping[str, str] = {
    "value": "pinned({})",
    "bool": "bool({})",
    "len": "len({})",
    "role": "{}['role']",
    "keys": "types_by_key({})",
    "values": "types_of({}.values())",
    "list": "types_of({})",
    "code": "code({})",
}
"""Tests of one expression. Each has the outcome that the proxies log."""

_ONE: Mapping[str, str] = {"str": "str({})", "written": "str({})", "items": "list({}.items())"}


def source_of(expression: Expression) -> str:
    """The Python source of an expression or test. Raises Unloggable for one without a rule."""
    kind = expression[0]
    written = _WRITERS.get(kind)
    if written is not None:
        return written(expression)
    pattern = _TESTS.get(kind) or _ONE.get(kind)
    if pattern is None:
        raise Unloggable(f"an expression of the kind {kind}")
    return pattern.format(source_of(expression[1]))


def source_of_form(form: Form) -> str:
    parts = [] if not form[0] and form[1] else [str(form[0])]
    for atom, factor in form[1]:
        value = atom if isinstance(atom, str) else f"({source_of(atom)})"
        parts.append(value if factor == 1 else f"{factor}*{value}")
    return "+".join(parts)


def _message(e: Expression) -> str:
    return "c" if e[1] == PLACE else f"M[{source_of_form(e[1])}]"


def _slice(e: Expression) -> str:
    start, stop, step = ("" if end is None else str(end) for end in e[2:5])
    return f"{source_of(e[1])}[{start}:{stop}:{step}]"


def _method(e: Expression) -> str:
    arguments = [*map(source_of, e[3]), *(f"{name}={value!r}" for name, value in e[4])]
    return f"{source_of(e[2])}.{e[1]}({', '.join(arguments)})"


def _json(e: Expression) -> str:
    options = {name: value for name, value in e[2] if value not in (None, False) or name == "ensure_ascii"}
    if options == _PLAIN_JSON:
        return f"as_json({source_of(e[1])})"
    return f"dumps({source_of(e[1])}, {', '.join(f'{name}={value!r}' for name, value in options.items())})"


def _commas(parts: Any) -> str:
    return "".join(f"{source_of(part)}, " for part in parts)


_WRITERS: Mapping[str, Callable[[Expression], str]] = {
    "k": lambda e: repr(e[1]),
    "M": _message,
    "undefined": lambda _: "Undefined",
    "T": lambda _: "t",
    "get": lambda e: f"{source_of(e[1])}[{e[2]!r}]",
    "slice": _slice,
    "m": _method,
    "json": _json,
    "cat": lambda e: "''.join((" + _commas(e[1]) + "))",
    "int": lambda e: f"({source_of_form(e[1])})",
    "ns": lambda e: f"s.get({e[1]!r}, Undefined)",
    "nsv": lambda e: f"V[{e[1]}].get({e[2]!r}, Undefined)",
    "x": lambda e: f"x[{3 * e[1] + e[2]}]",
    "sub": lambda e: f"nested({e[1]!r}, {source_of(e[2])}, M, c, i, n, s, t, V, x)",
    "key": lambda e: f"list({source_of(e[1])})[{e[2]}]",
    "nth": lambda e: f"list({source_of(e[1])}.values())[{e[2]}]",
    "mod": lambda e: f"({source_of_form(e[1])}) % {e[2]}",
    "dict": lambda e: "{" + "".join(f"{source_of(a)}: {source_of(b)}, " for a, b in e[1]) + "}",
    "items of": lambda e: "[" + _commas(e[1]) + "]",
    "tuple": lambda e: "(" + _commas(e[1]) + ")",
    "messages": lambda e: f"M[{e[1]}:n-{e[2]}][::{e[3]}]",
    "==": lambda e: f"{source_of(e[1])} == {source_of(e[2])}",
    "in": lambda e: f"{source_of(e[1])} in {source_of(e[2])}",
    "compared": lambda e: f"operator.{e[1]}({source_of(e[2])}, {source_of(e[3])})",
    "within": lambda e: f"-len({source_of(e[1])}) <= {e[2]} < len({source_of(e[1])})",
    "form": lambda e: f"operator.{e[1]}({source_of_form(e[2])}, 0)",
}

ARGUMENTS = "M, c, i, n, s, t, V, x=()"


class Compiler:
    """Expressions → functions, each compiled once. `nested`: the function that renders a nested loop, see `walking`."""

    def __init__(self, nested: Callable[..., str]) -> None:
        self._functions: dict[str, Evaluate] = {}
        self._names: dict[str, Any] = {
            "nested": nested,
            "dumps": json.dumps,
            "as_json": json.JSONEncoder(ensure_ascii=False).encode,
            "operator": operator,
            "Undefined": Undefined,
            "pinned": pinned,
            "types_by_key": types_by_key,
            "types_of": types_of,
            "code": code,
        }

    def function(self, source: str) -> Evaluate:
        made = self._functions.get(source)
        if made is None:
            # Constants are written by `repr`, and names come from this module: no text of a user is code.
            made = self._functions[source] = eval(f"lambda {ARGUMENTS}: {source}", self._names)
        return made

    def of(self, expression: Expression) -> Evaluate:
        return self.function(source_of(expression))

    def text(self, parts: tuple[Expression, ...]) -> Evaluate:
        """The text of several expressions, one after another."""
        return self.of(("cat", parts) if len(parts) != 1 else parts[0])

    def state(self, slots: tuple[tuple[Any, Expression], ...]) -> Evaluate:
        """New values of attributes of namespaces, as a dict."""
        return self.function("{" + "".join(f"{slot!r}: {source_of(e)}, " for slot, e in slots) + "}")
