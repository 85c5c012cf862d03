"""Jinja's sandbox with a meter, which stops chat templates that loop or write text endlessly.

In: the source of a template, values of users. Out: an environment that compiles templates so that every loop
iteration, call, filter, slice and concatenation is counted. Each of them, and each comparison, also checks the clock.
Raises `LimitError` when a rendering exceeds its `Limits`.

The count of text never decreases, even when the template drops the text: the text in memory is never more than counted.

If the meter is `traced`, joins, filters and formats keep the marks of texts (`traced_text.py`).
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from spanloom.tokenizers.traced_text import TracedText, brace_formatted, joined, json_text

MAX_STEPS = 1_000_000
"""Loop iterations and calls in one rendering."""

MAX_CHARACTERS = 200_000_000
"""Characters written or joined in one rendering, intermediate texts included."""

MAX_BYTES = 400_000_000
"""Memory of those texts: a text with one emoji takes 4 bytes per character, Chinese text 2, ASCII text 1."""

MAX_SECONDS = 20.0
"""Catches what the other limits miss; checked at every step and every long text."""

_AT_ONCE = 4096
"""Texts up to this many characters take no time: the clock is not checked for them, since steps limit their number."""

_MAX_COUNT = 100_000
"""Largest width, indent or batch size passed to a filter or method; also Jinja's own limit of `range`."""

_NUMBER = re.compile(r"[0-9]+")
_WRITING = frozenset(
    {"string", "pprint", "escape", "e", "forceescape", "safe", "upper", "lower", "capitalize", "title"}
)
"""Filters that convert any value to text."""

_LISTING = frozenset(
    {"list", "batch", "slice", "sort", "unique", "map", "select", "reject", "groupby", "reverse", "splitlines"}
)
"""Filters and methods that make a list; from a text, a list of its characters or lines."""

_JOINING = frozenset({"join", "replace", "format"})
"""Filters that insert texts into another text by calling a method of it."""

_OF_DICTS = frozenset(dir(dict))

_OF_TEXTS = frozenset({name for name in dir(str) if not name.startswith("_")} - {"format", "format_map"})
"""Methods of texts that are safe to read and call. `format` and `format_map` are not, and are wrapped."""

_OF_CONTEXT = frozenset({"_loop_vars", "_block_vars"})
"""Keyword arguments that compiled templates add to each call, for functions that ask for the context."""

_OF_LOOPS = frozenset({"first", "last", "index", "index0", "length", "previtem", "nextitem", "revindex", "revindex0"})
"""Values of `loop` that templates read most."""

_MAX_BITS = 20_000
"""Largest integer, in bits. Python refuses to print more than 4,300 digits, 14,285 bits."""


BEGIN_GENERATION, END_GENERATION = "\ue0f0", "\ue0f1"
"""Private-use characters, written around the body of `{% generation %}`."""


class LimitError(jinja2.TemplateRuntimeError):
    """The template was stopped by a limit."""


class RaisedError(jinja2.TemplateError):
    """The template called `raise_exception`."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one rendering: loop iterations and calls, characters written or joined, their bytes, seconds."""

    steps: int = MAX_STEPS
    characters: int = MAX_CHARACTERS
    bytes: int = MAX_BYTES
    seconds: float = MAX_SECONDS


@dataclass(kw_only=True)
class Meter:
    """What a rendering has used so far.

    `traced`: keep the marks of texts (`traced_text.py`). `generation`: write the marks around `{% generation %}`.
    """

    limits: Limits
    traced: bool = False
    generation: bool = False
    steps: int = 0
    characters: int = 0
    bytes: int = 0
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.limits.seconds

    def step(self) -> None:
        self.steps += 1
        if self.steps > self.limits.steps:
            raise LimitError(f"it takes more than {self.limits.steps:,} rounds of loops and calls: an endless loop?")
        self.look_at_clock()

    def make(self, characters: int, width: int = 1) -> None:
        """Counts a text, or the equivalent of a list, before it is made. `width`: bytes per character in memory."""
        self.characters += characters
        self.bytes += characters * width
        if self.characters > self.limits.characters:
            raise LimitError(f"it makes more than {self.limits.characters:,} characters of text: it grows without end")
        if self.bytes > self.limits.bytes:
            raise LimitError(f"it makes more than {self.limits.bytes:,} bytes of text: it grows without end")
        if characters > _AT_ONCE:
            self.look_at_clock()

    def look_at_clock(self) -> None:
        """Raises LimitError after the deadline."""
        # One step on a text of the maximum length takes up to a second.
        if time.monotonic() > self.deadline:
            raise LimitError(f"it runs for more than {self.limits.seconds:g} seconds")


METER: ContextVar[Meter] = ContextVar("METER")
"""The meter of the current rendering; each thread and task has its own."""


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}`, which transformers uses for masks. The body is unchanged.

    If the meter has `generation`, `BEGIN_GENERATION` and `END_GENERATION` are written around the body.
    """

    tags = {"generation"}  # noqa: RUF012  # Jinja declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        begin, end = (self._written(mark, line) for mark in (BEGIN_GENERATION, END_GENERATION))
        return nodes.Scope([begin, *body, end]).set_lineno(line)

    @staticmethod
    def _written(mark: str, line: int) -> nodes.Node:
        call = nodes.Call(nodes.EnvironmentAttribute("generation_mark"), [nodes.Const(mark)], [], None, None)
        return nodes.Output([call]).set_lineno(line)


class Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox; the meter counts every loop iteration, call, filter and concatenation."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, LoopControlExtension],
            finalize=_written,
            cache_size=0,
        )
        self.filters["tojson"] = _to_json
        del self.filters["random"]
        self.filters = {name: _metered_filter(name, function) for name, function in self.filters.items()}
        tests: dict[str, Any] = self.tests
        tests.update({name: _timed_test(function) for name, function in tests.items()})
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _raise_exception

    @property
    def concat(self) -> Callable[[Iterable[str]], str]:  # type: ignore[override]
        """Joins the output of compiled templates, macros and blocks."""
        return joined if METER.get(_WITHOUT_METER).traced else "".join

    def getattr(self, obj: Any, attribute: str) -> Any:
        # Templates mostly read keys of messages. Jinja would try an attribute first, which raises internally.
        if type(obj) is dict and attribute not in _OF_DICTS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if attribute in _safe_names(type(obj)):
            return getattr(obj, attribute)
        if type(obj) is Namespace and not attribute.startswith("_") and hasattr(obj, attribute):
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        # Jinja's version returns an undefined value, which prints as nothing and hides the attempt.
        raise SecurityError(f"the attribute {attribute!r} of {type(obj).__name__!r}")

    def _generate(
        self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False
    ) -> str:
        _meter_loops(source)
        return super()._generate(source, name, filename, defer_init)

    def count_round(self, characters: int) -> None:
        meter = METER.get()
        meter.step()
        meter.make(characters)

    def join_texts(self, values: Sequence[Any]) -> str:
        METER.get().make(sum(map(_size, values)), max(map(_width, values)))
        return self.concat([str(value) for value in values])

    def generation_mark(self, mark: str) -> str:
        return mark if METER.get().generation else ""

    def slice_of(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        meter = METER.get()
        meter.step()
        part = slice(start, stop, step)
        if isinstance(value, str | bytes):
            meter.make(len(range(*part.indices(len(value)))), _width(value))
        elif isinstance(value, list | tuple):  # the items are the same, whatever they hold
            meter.make(_ITEM * len(range(*part.indices(len(value)))))
        return value[part]

    def compared(self, value: Any) -> Any:
        METER.get().look_at_clock()  # comparing two texts takes time linear in their length
        return value

    def count_made(self, value: Any) -> Any:
        METER.get().make(_size(value), _width(value))
        return value

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(__obj, "__self__", None)
        if owner is __self:
            return __obj(*args)  # what `_meter_loops` wrote
        meter = METER.get()
        meter.step()
        if isinstance(owner, str | list):
            _check_growth(__obj.__name__, (owner, *args), kwargs)
            if meter.traced and type(owner) is str and __obj.__name__ in {"join", "replace"}:
                __obj = getattr(TracedText(owner), __obj.__name__)
        if type(owner) in _TEXTS and __obj.__name__ in _OF_TEXTS:
            passed = {name: value for name, value in kwargs.items() if name not in _OF_CONTEXT}
            value = __obj(*args, **passed)
        else:
            value = super().call(__context, __obj, *args, **kwargs)
        meter.make(_size(value), _width(value))
        return value

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and type(left) in _TEXTS and type(right) in _TEXTS and (meter := METER.get(None)):
            meter.make(len(left) + len(right), 1 if left.isascii() and right.isascii() else 4)
            return left + right
        _check_operands(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`format` and `format_map` of a text, which Jinja replaces by functions without `__self__`."""
        safe = super().wrap_str_format(value)
        if safe is None:
            return None

        def metered(*args: Any, **kwargs: Any) -> str:
            _check_growth(value.__name__, (value.__self__, *args), kwargs)
            text = safe(*args, **kwargs)
            if not METER.get(_WITHOUT_METER).traced:
                return text
            by_map = value.__name__ == "format_map"
            return brace_formatted(value.__self__, () if by_map else args, args[0] if by_map else kwargs, text)

        return metered


def _safe_names(kind: type) -> frozenset[str]:
    """Attributes that need no further check; templates mostly read these."""
    return _OF_TEXTS if kind in _TEXTS else _OF_LOOPS if kind is LoopContext else _NOTHING


_TEXTS = frozenset({str, TracedText})
_NOTHING: frozenset[str] = frozenset()


def _written(value: Any) -> Any:
    """Counts the value of an expression before it is written. Jinja also calls this for constants at compile time."""
    meter = METER.get(None)
    if meter is not None and type(value) is str:
        meter.make(len(value), 1 if value.isascii() else _width(value))
    elif meter is not None:
        # Before it is written: a list may contain the same list many times.
        meter.make(_size(value), _width(value))
        if not isinstance(value, str):
            value = str(value)
    return value


def _raise_exception(message: Any) -> NoReturn:
    raise RaisedError(str(message))


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    write = json_text if METER.get(_WITHOUT_METER).traced else json.dumps
    return write(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _meter_loops(template: nodes.Template) -> None:
    """Rewrites a template: every loop iteration and every macro call starts with a call that counts it.

    `~` becomes a call of `join_texts`, `a[1:]` a call of `slice_of`; a list, tuple or dict built from variables goes
    through `count_made`.
    """
    loops: list[nodes.For | nodes.Macro | nodes.CallBlock] = [
        *template.find_all(nodes.For),
        *template.find_all(nodes.Macro),
        *template.find_all(nodes.CallBlock),
    ]
    for loop in loops:
        constant = sum(len(data.data) for data in loop.find_all(nodes.TemplateData))
        count = nodes.Call(nodes.EnvironmentAttribute("count_round"), [nodes.Const(constant)], [], None, None)
        loop.body.insert(0, nodes.ExprStmt(count).set_lineno(loop.lineno))
    for parent in [template, *template.find_all(nodes.Node)]:
        for name, value in list(parent.iter_fields()):
            if isinstance(value, nodes.Node):
                setattr(parent, name, _counted(value))
            elif isinstance(value, list):
                value[:] = [_counted(item) for item in value]
    if template.environment is not None:
        template.set_environment(template.environment)


def _counted(node: Any) -> Any:
    """The metered replacement of a node, or the node itself if it needs none."""
    if isinstance(node, nodes.Concat):
        return _called("join_texts", [nodes.List(node.nodes)], node)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        ends = [nodes.Const(None) if end is None else end for end in (node.arg.start, node.arg.stop, node.arg.step)]
        return _called("slice_of", [_counted(part) for part in (node.node, *ends)], node)
    if isinstance(node, nodes.Compare) and not _is_short(node):
        return _called("compared", [node], node)
    holds = node.items if isinstance(node, nodes.List | nodes.Tuple | nodes.Dict) else []
    targets = isinstance(node, nodes.Tuple) and node.ctx != "load"  # `for a, b in …`
    if targets or all(isinstance(item, nodes.Const) for item in holds):
        return node
    return _called("count_made", [node], node)


def _is_short(node: nodes.Compare) -> bool:
    """Whether a constant of the template bounds the cost of a comparison: `role == 'user'`."""
    values = [node.expr, *(operand.expr for operand in node.ops)]
    if any(operand.op in {"in", "notin"} for operand in node.ops):
        values = values[1:]
    return len(node.ops) == 1 and any(isinstance(value, nodes.Const) for value in values)


def _called(function: str, arguments: list[nodes.Expr], place: nodes.Node) -> nodes.Call:
    call = nodes.Call(nodes.EnvironmentAttribute(function), arguments, [], None, None)
    call.set_lineno(place.lineno)
    return call


def _metered_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    # Filters that ask for the context, the environment or the evaluation context get it first; `wraps` keeps the mark.
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def metered(*args: Any, **kwargs: Any) -> Any:
        meter = METER.get(None)
        if meter is None:  # Jinja folds constants at compile time, and defers to the rendering what raises
            raise LimitError("filters run only while a template is rendered")
        meter.step()
        _check_growth(name, args[first:], kwargs)
        if meter.traced and name in _JOINING:
            args, kwargs = _keeping_marks(name, args, kwargs, first)
        value = function(*args, **kwargs)
        if meter.traced and name == "safe":  # a text of Markup has no marks, and nothing is escaped here
            value = args[first] if isinstance(args[first], str) else str(value)
        if value is not args[first]:
            meter.make(_size(value), _width(value))
        return value

    return metered


def _keeping_marks(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any], first: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a filter in `_JOINING`, with the text whose method it calls as a TracedText."""
    place = first + (name == "join")
    if len(args) > place:
        if type(args[place]) is str:
            args = (*args[:place], TracedText(args[place]), *args[place + 1 :])
    elif name == "join":
        kwargs = {**kwargs, "d": TracedText(kwargs.get("d", ""))}
    return args, kwargs


def _timed_test(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        if (meter := METER.get(None)) is not None:
            meter.look_at_clock()
        return function(*args, **kwargs)

    return timed


def _check_growth(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raises LimitError before a filter or method makes more text from its arguments than the limits allow."""
    values = [*args[1:], *kwargs.values()]
    if name in {"int", "float", "round", "default", "d", "index", "find", "rfind", "count", "split", "rsplit"}:
        counts: list[int] = []  # these numbers do not make the result longer
    else:
        counts = [value for value in values if isinstance(value, int)]
    if any(abs(count) > _MAX_COUNT for count in counts):
        raise LimitError(f"{name} is given a number above {_MAX_COUNT:,}")
    value = args[0] if args else None
    expected = 0
    if name in {"format", "format_map"} and isinstance(value, str):
        expected = _check_format(value) + (value.count("{") + value.count("%")) * sum(map(_size, values))
    elif name == "replace" and isinstance(value, str) and len(values) >= 2 and isinstance(values[0], str):
        expected = value.count(values[0]) * _size(values[1])
    elif name == "join":
        # A method of the separator, or a filter on the parts: `", ".join(parts)`, `parts | join(", ")`.
        separator, parts = (
            (value, values[0]) if isinstance(value, str) and values else (values[0] if values else "", value)
        )
        expected = _size(separator) * (_size(parts) if isinstance(parts, str | list | tuple | dict) else _MAX_COUNT)
    elif name in {"indent", "expandtabs"} and isinstance(value, str):
        width = max([4, 8, *(abs(count) for count in counts), *(_size(text) for text in values)])
        expected = width * (value.count("\n") + value.count("\t") + 1)
    elif name == "tojson" and (any(count > 100 for count in counts) or sum(map(_size, values)) > 200):
        raise LimitError("tojson is given an indent or separators above 100 characters")
    elif name in _WRITING:
        expected = _size(value)
    elif name in {"split", "rsplit"} and isinstance(value, str):
        parts = value.count(values[0]) if values and isinstance(values[0], str) and values[0] else len(value) // 2
        expected = _ITEM * parts
    elif name in _LISTING and isinstance(value, str):
        expected = _ITEM * len(value)
    elif name in {"wordwrap", "urlize", "xmlattr", "sum", "translate"}:
        expected = _size(value) * max([1, *(_size(text) for text in values)])
    if expected > MAX_CHARACTERS:
        raise LimitError(f"{name} would make {expected:,} characters of text")


def _check_operands(operator: str, left: Any, right: Any) -> None:
    size = 0
    if operator == "+" and isinstance(left, str) and isinstance(right, str):  # the most common case
        size = len(left) + len(right)
    elif isinstance(left, int) and isinstance(right, int):
        bits = {
            "+": max(left.bit_length(), right.bit_length()),
            "*": left.bit_length() + right.bit_length(),
            "**": left.bit_length() * abs(right) if right > 1 else left.bit_length(),
            "%": 0,
        }[operator]
        if bits > _MAX_BITS:
            raise LimitError("it computes with integers of thousands of digits")
    elif operator == "+":
        size = _size(left) + _size(right)
    elif operator == "*":
        size = _size(left) * right if isinstance(right, int) else _size(right) * left if isinstance(left, int) else 0
    elif operator == "%" and isinstance(left, str):
        size = len(left) + _check_format(left) + left.count("%") * _size(right)
    if size > 0:
        meter = METER.get(None) or Meter(limits=Limits())  # no rendering is running when Jinja folds constants
        meter.make(size, max(_width(left), _width(right)))


def _check_format(text: str) -> int:
    """The sum of all numbers in a format, widths included: `%999999999d`, `{:>99999}` a thousand times.

    Raises LimitError for a width taken from an argument.
    """
    if "%*" in text or ".*" in text or "{:{" in text:
        raise LimitError("a format takes its width from an argument")
    return sum(int(number[:18]) for number in _NUMBER.findall(text))


def _size(value: Any) -> int:
    """Characters of a text; for a list, tuple or dict about its length when written, nested values included.

    Raises LimitError as soon as the count exceeds the limit of a rendering: nested lists may double at each level.
    """
    if isinstance(value, str):
        return len(value)
    if value is None or isinstance(value, (bool, int, float)):
        return 0
    if isinstance(value, bytes):
        return len(value)
    if not isinstance(value, (list, tuple, dict, Namespace)):
        return 0
    most = METER.get(_WITHOUT_METER).limits.characters
    size = 0
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        size += _ITEM
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, list | tuple | dict) and size + _ITEM * len(item) > most:
            size += _ITEM * len(item)  # before it is copied
        elif isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.keys())
            waiting.extend(item.values())
        elif isinstance(item, Namespace):
            waiting.append(item._Namespace__attrs)  # what its repr writes
        if size > most:
            raise LimitError(f"it makes a list or dict of more than {most:,} characters: it grows without end")
    return size


def _width(value: Any) -> int:
    """Bytes per character of a text in memory, 1 to 4; for values that are converted to text, the maximum."""
    if not isinstance(value, str):
        return 1 if value is None or isinstance(value, (int, float, bytes)) else 4  # a tuple is faster
    if value.isascii():
        return 1
    if isinstance(value, TracedText):  # its memory layout differs from that of a plain str
        return 4
    each = (sys.getsizeof(value) - _TEXT_HEAD) / (len(value) + 1)
    if each in (1, 2, 4):
        return int(each)
    # CPython caches the UTF-8 form of a text once a C library has asked for it. The cache adds more than 1 byte per
    # character, and up to 2, 3 or 4 for widths 1, 2 and 4.
    return 1 if each < 3 else 2 if each < 5 else 4


_TEXT_HEAD = sys.getsizeof(chr(0x4E00) * 2) - 3 * 2
"""Bytes of a non-ASCII text, without its characters and the terminating zero, which is as wide as a character."""

_ITEM = 16
"""What a list item counts, in characters: twice the memory of a reference."""

_WITHOUT_METER = Meter(limits=Limits())
"""The limits when Jinja folds constants and no rendering is running."""
