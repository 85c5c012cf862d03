"""Texts and numbers of a conversation, as values that log what a template asks of them.

In: a text or number with its expression. Out: `Text`, `Whole` and `Real`, subclasses of `str`, `int` and `float`.
Whole numbers are linear forms, so that `loop.index0 - 1` or `messages | length` need no test until they are compared.
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from spanloom.tokenizers.template_paths.expressions import Expression, Form, Unloggable, added, scaled
from spanloom.tokenizers.template_paths.recorder import append, recorder
from spanloom.tokenizers.template_paths.symbols import Symbol, expression_of, fixed, forbid_the_rest, is_symbol, plain


class Compared(Symbol):
    """What can be compared with another value."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return bool(compared("eq", self, other))

    def __ne__(self, other: object) -> bool:
        return bool(compared("ne", self, other))

    def __lt__(self, other: Any) -> bool:
        return bool(compared("lt", self, other))

    def __le__(self, other: Any) -> bool:
        return bool(compared("le", self, other))

    def __gt__(self, other: Any) -> bool:
        return bool(compared("gt", self, other))

    def __ge__(self, other: Any) -> bool:
        return bool(compared("ge", self, other))


class Text(Compared, str):
    """A text. Tests of it are logged; what is made of it is a Text again."""

    __slots__ = ("_of",)

    def __new__(cls, text: str, of: Expression) -> "Text":
        self = super().__new__(cls, text)
        self._of = of
        return self

    @property
    def _plain(self) -> str:
        return str.__getitem__(self, slice(None))

    def __str__(self) -> str:
        return self

    def __repr__(self) -> str:
        return repr(fixed(self))

    def __format__(self, spec: str) -> str:
        return format(fixed(self), spec)

    def __hash__(self) -> int:
        return hash(fixed(self))

    def __bool__(self) -> bool:
        return bool(recorder().test(("bool", self._of), str.__len__(self) > 0))

    def __len__(self) -> int:
        return int(recorder().test(("len", self._of), str.__len__(self)))

    def __contains__(self, other: Any) -> bool:
        return contains(other, self)

    def __add__(self, other: Any) -> Any:
        return joined((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return joined((other, self)) if isinstance(other, str) else NotImplemented

    def __mul__(self, count: Any) -> Any:
        return joined([self] * int(fixed(count)))

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> Any:
        return fixed(self) % fixed(values)

    def __rmod__(self, template: Any) -> Any:
        return template % fixed(self)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            ends = tuple(fixed(end) for end in (key.start, key.stop, key.step))
            return Text(self._plain[slice(*ends)], ("slice", self._of, *ends))
        key = fixed(key)
        length = str.__len__(self)
        if not recorder().test(("within", self._of, key), -length <= key < length):
            raise IndexError("string index out of range")
        return Text(self._plain[key], ("get", self._of, key))

    def __iter__(self) -> Iterator[str]:
        for key in range(len(self)):
            yield Text(self._plain[key], ("get", self._of, key))

    def __reversed__(self) -> Iterator[str]:
        return iter(list(self)[::-1])

    def join(self, parts: Iterable[Any]) -> str:
        out: list[Any] = []
        for part in parts:
            if not isinstance(part, str):
                raise TypeError(f"sequence item {len(out)}: expected str instance")
            out += [self, part] if out else [part]
        return joined(out)

    def split(self, *args: Any, **options: Any) -> Any:
        return self._listed("split", args, options)

    def rsplit(self, *args: Any, **options: Any) -> Any:
        return self._listed("rsplit", args, options)

    def splitlines(self, *args: Any, **options: Any) -> Any:
        return self._listed("splitlines", args, options)

    def _listed(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if options:
            args, options = tuple(map(fixed, args)), {key: fixed(value) for key, value in options.items()}
        parts = getattr(self._plain, name)(*map(plain, args), **options)
        of = ("m", name, self._of, tuple(map(expression_of, args)), tuple(options.items()))
        return Parts(parts, of, ends_exist=name == "split" and bool(args) and args[0] is not None)

    def partition(self, separator: Any) -> Any:
        return self._three("partition", separator)

    def rpartition(self, separator: Any) -> Any:
        return self._three("rpartition", separator)

    def _three(self, name: str, separator: Any) -> tuple[Any, ...]:
        of = ("m", name, self._of, (expression_of(separator),), ())
        parts = getattr(self._plain, name)(plain(separator))
        return tuple(Text(part, ("get", of, place)) for place, part in enumerate(parts))

    def format(self, *args: Any, **options: Any) -> Any:
        return fixed(self).format(*map(fixed, args), **{key: fixed(value) for key, value in options.items()})

    def format_map(self, values: Any) -> Any:
        return fixed(self).format_map(fixed(values))


def _of_text(name: str) -> Callable[..., Any]:
    def method(self: Text, *args: Any) -> Any:
        value = getattr(str, name)(self._plain, *map(plain, args))
        of = ("m", name, self._of, tuple(map(expression_of, args)), ())
        if isinstance(value, str):
            return Text(value, of)
        if isinstance(value, bool):
            return recorder().test(of, value)
        return Whole(value, (0, ((of, 1),)))

    return method


def _of_fixed(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        return getattr(fixed(self), name)(*map(fixed, args), **{key: fixed(value) for key, value in options.items()})

    return method


_TEXTS = (
    *("strip", "lstrip", "rstrip", "upper", "lower", "title", "capitalize", "swapcase", "casefold", "replace"),
    *("removeprefix", "removesuffix", "expandtabs", "center", "ljust", "rjust", "zfill"),
)
_TESTS = (
    *("startswith", "endswith", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier"),
    *("islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper"),
)
for _name in (*_TEXTS, *_TESTS, "find", "rfind", "count"):
    setattr(Text, _name, _of_text(_name))
for _name in ("index", "rindex", "encode", "translate"):
    setattr(Text, _name, _of_fixed(_name))


class SafeText(Text):
    """A text that `|safe` marked. It may be written and tested; Jinja would escape what is joined to it."""

    __slots__ = ()


def _escapes(*_: Any, **__: Any) -> Any:
    raise Unloggable("a text that is marked as safe escapes what is joined to it")


for _name in (
    *("__add__", "__radd__", "__mul__", "__rmul__", "__mod__", "__rmod__", "__getitem__", "__iter__", "join"),
    *("split", "rsplit", "splitlines", "partition", "rpartition", "format", "format_map", *_TEXTS),
):
    setattr(SafeText, _name, _escapes)


class Parts(Symbol, list[Any]):
    """Parts of a text. `ends_exist`: the first and the last exist, whatever the text is."""

    def __init__(self, parts: list[str], of: Expression, *, ends_exist: bool) -> None:
        super().__init__()
        self._parts, self._of, self._ends_exist = parts, of, ends_exist

    @property
    def _plain(self) -> list[str]:
        return list(self._parts)

    def __len__(self) -> int:
        return int(recorder().test(("len", self._of), len(self._parts)))

    def __bool__(self) -> bool:
        return bool(recorder().test(("bool", self._of), bool(self._parts)))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return list(self)[slice(*(fixed(end) for end in (key.start, key.stop, key.step)))]
        key = fixed(key)
        if not (self._ends_exist and key in (0, -1)):
            len(self)
        return Text(self._parts[key], ("get", self._of, key))

    def __iter__(self) -> Iterator[Any]:
        for key in range(len(self)):
            yield Text(self._parts[key], ("get", self._of, key))

    def __reversed__(self) -> Iterator[Any]:
        return iter(list(self)[::-1])

    def __add__(self, other: Any) -> Any:
        return list(self) + other

    def __contains__(self, other: Any) -> bool:
        return any(compared("eq", part, other) for part in self)

    def __eq__(self, other: object) -> bool:
        return bool(fixed(self) == fixed(other))


class Whole(Compared, int):
    """A whole number: a linear form."""

    _form: Form

    def __new__(cls, value: int, form: Form) -> "Whole":
        self = super().__new__(cls, value)
        self._form = form
        return self

    @property
    def _expression(self) -> Expression:
        return "int", self._form

    @property
    def _plain(self) -> int:
        return int.__add__(self, 0)

    def _sum(self, other: Any, sign: int) -> Any:
        form = added(self._form, form_of_number(other), sign)
        value = self._plain + sign * plain(other)
        return Whole(value, form) if form[1] else value

    def __add__(self, other: Any) -> Any:
        return self._sum(other, 1) if isinstance(other, int) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._sum(other, -1) if isinstance(other, int) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __neg__(self) -> Any:
        return Whole(-self._plain, scaled(self._form, -1))

    def __pos__(self) -> Any:
        return self

    def __mul__(self, other: Any) -> Any:
        if type(other) is int and other:
            return Whole(self._plain * other, scaled(self._form, other))
        return fixed(self) * fixed(other)

    __rmul__ = __mul__

    def __mod__(self, other: Any) -> Any:
        if type(other) is int and other > 0:
            return Whole(self._plain % other, (0, ((("mod", self._form, other), 1),)))
        return fixed(self) % fixed(other)

    def __index__(self) -> int:
        return int(fixed(self))

    def __bool__(self) -> bool:
        return bool(_form_test("ne", self._form, self._plain != 0))

    def __str__(self) -> str:
        return Text(str(self._plain), ("str", self._expression))


class Real(Symbol, float):
    """A number with a fraction. It may be written; any other use holds for this value alone."""

    __slots__ = ("_of",)

    def __new__(cls, value: float, of: Expression) -> "Real":
        self = super().__new__(cls, value)
        self._of = of
        return self

    @property
    def _plain(self) -> float:
        return float.__mul__(self, 1.0)

    def __str__(self) -> str:
        return Text(str(self._plain), ("str", self._of))


_FIXED = (
    *("__floordiv__", "__truediv__", "__pow__", "__rmod__", "__rfloordiv__", "__rtruediv__", "__rpow__", "__hash__"),
    *("__float__", "__int__", "__abs__", "__round__", "__repr__", "__format__"),
)
for _name in _FIXED:
    setattr(Whole, _name, _of_fixed(_name))
for _name in (
    *_FIXED,
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__mod__", "__neg__", "__bool__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
):
    setattr(Real, _name, _of_fixed(_name))


def form_of_number(value: int) -> Form:
    return value._form if isinstance(value, Whole) else (int(value), ())


def _form_test(how: str, form: Form, outcome: bool) -> bool:
    return bool(recorder().test(("form", how, form), outcome)) if form[1] else outcome


def compared(how: str, left: Any, right: Any) -> Any:
    """`operator.HOW(left, right)`, logged. Python would not ask a value that is compared with a number of another
    type: `0.5 < n`."""
    compare = getattr(operator, how)
    if isinstance(left, str) and isinstance(right, str):
        if not isinstance(left, Text) and not isinstance(right, Text):
            return compare(left, right)
        test = ("==", *sorted((expression_of(left), expression_of(right)), key=repr))
        outcome = compare(plain(left), plain(right))
        if how in ("eq", "ne"):
            return recorder().test(test, outcome if how == "eq" else not outcome) == (how == "eq")
        return recorder().test(("compared", how, expression_of(left), expression_of(right)), outcome)
    if isinstance(left, int) and isinstance(right, int):
        form = added(form_of_number(left), form_of_number(right), -1)
        return _form_test(how, form, compare(plain(left), plain(right)))
    if isinstance(left, str) != isinstance(right, str) and how in ("eq", "ne"):
        return how == "ne"  # the types are logged when a value is read
    if how in ("eq", "ne") and (left is None) != (right is None):
        return how == "ne"
    outcome = compare(plain(left), plain(right))
    if not is_symbol(left) and not is_symbol(right):
        return outcome
    return recorder().test(("compared", how, expression_of(left), expression_of(right)), outcome)


def contains(part: Any, whole: Any) -> bool:
    """`part in whole`, logged."""
    if isinstance(whole, str) and isinstance(part, str) and (isinstance(whole, Text) or isinstance(part, Text)):
        test = ("in", expression_of(part), expression_of(whole))
        return bool(recorder().test(test, plain(part) in plain(whole)))
    if isinstance(whole, str):
        return part in plain(whole)  # raises TypeError
    if type(whole) in (list, tuple):
        return any(compared("eq", item, part) for item in whole)
    if type(whole) is dict:
        return fixed(part) in [fixed(key) for key in whole]
    return part in whole


def joined(parts: Iterable[Any]) -> str:
    """Texts one after another."""
    texts = list(parts)
    if not any(isinstance(text, Text) for text in texts):
        return "".join(texts)
    out: list[Expression] = []
    for text in texts:
        of = expression_of(text)
        for part in of[1] if of[0] == "cat" else (of,):
            append(out, part)
    whole = "".join(map(plain, texts))
    return Text(whole, out[0] if len(out) == 1 else ("cat", tuple(out)))


def as_text(value: Any) -> Text:
    """A text as one that logs."""
    if isinstance(value, Text):
        return value
    if isinstance(value, str):
        return Text(value, expression_of(value))
    written = str(value)
    return written if isinstance(written, Text) else Text(written, expression_of(written))


forbid_the_rest(Text, SafeText, Parts, Whole, Real)
