"""Jinja's sandbox for values that log: what a template may do with them, and what only holds for the very value.

In: the source of a template. Out: an environment whose filters, tests and operators have a rule for such values, or fix
them (`symbols.fixed`), or raise Unloggable. It writes the same text as `template_sandbox`, without a meter: what it
learns is compared with a rendering there.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from spanloom.tokenizers.template_paths.expressions import Unloggable
from spanloom.tokenizers.template_paths.messages import (
    UNDEFINED_ITEM,
    LoopOverItems,
    LoopOverMessages,
    MessageLoop,
    Messages,
    NestedLoop,
)
from spanloom.tokenizers.template_paths.namespaces import SymbolicNamespace, read
from spanloom.tokenizers.template_paths.recorder import recorder, recording
from spanloom.tokenizers.template_paths.records import Items, Record, Values
from spanloom.tokenizers.template_paths.rewriting import rewrite
from spanloom.tokenizers.template_paths.scalars import Parts, SafeText, Text, Whole, as_text, compared, contains, joined
from spanloom.tokenizers.template_paths.symbols import Symbol, expression_of, fixed, is_symbol, plain

_BY_METHODS = frozenset(
    {
        *("default", "d", "list", "string", "upper", "lower", "select", "reject", "map", "selectattr", "rejectattr"),
        *("trim", "attr"),
    }
)
"""Filters that ask a value only by its methods, written in Python."""

_OPERATORS: Mapping[str, str] = {
    "eq": "eq",
    "ne": "ne",
    "lt": "lt",
    "lteq": "le",
    "gt": "gt",
    "gteq": "ge",
}
_TESTS = {"==": "eq", "equalto": "eq", "!=": "ne", "<": "lt", "lessthan": "lt", "<=": "le", ">": "gt"} | {
    **{"greaterthan": "gt", ">=": "ge"},
    **{name: name for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}
_OF_CONTEXT = frozenset({"_loop_vars", "_block_vars"})
_OF_DICTS = frozenset(dir(dict))


class _GenerationTag(Extension):
    """`{% generation %}`: its body, as it is."""

    tags = {"generation"}  # noqa: RUF012  # Jinja declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class Environment(ImmutableSandboxedEnvironment):
    """The sandbox of one template. `strftime_now`: the function of that name, or None."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, strftime_now: Callable[[str], str] | None) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, LoopControlExtension],
            finalize=_written,
            cache_size=0,
        )
        self.optimized = False
        kept = {name: filter_ if name in _BY_METHODS else _of_fixed(filter_) for name, filter_ in self.filters.items()}
        del kept["random"]
        self.filters = kept | {
            "tojson": _to_json,
            "length": _length,
            "count": _length,
            "join": _join,
            "replace": _replace,
            "first": self._first,
            "last": self._last,
            "items": self._items,
            "safe": lambda value: SafeText(as_text(value)._plain, as_text(value)._expression),
            "capitalize": lambda value: as_text(value).capitalize(),
            **dict.fromkeys(("e", "escape", "forceescape"), _hidden("text that is escaped")),
        }
        tests: dict[str, Any] = self.tests
        tests.update({name: _of_fixed(tests[name]) for name in ("filter", "test", "divisibleby")})
        tests.update({name: _comparing(how) for name, how in _TESTS.items()})
        tests.update({"in": contains, "sequence": lambda value: isinstance(value, str | list | tuple | dict)})
        tests.update(dict.fromkeys(("sameas", "escaped"), _hidden("an object's identity")))
        self.globals |= {
            "namespace": SymbolicNamespace,
            "range": lambda *ends: range(*map(fixed, ends)),
            "raise_exception": _raise_exception,
            **dict.fromkeys(("joiner", "cycler"), _hidden("an object with a state of its own")),
        }
        del self.globals["lipsum"]
        if strftime_now is not None:
            self.globals["strftime_now"] = lambda how: strftime_now(fixed(how))

    @property
    def concat(self) -> Callable[[Iterable[str]], str]:  # type: ignore[override]
        return joined

    def _generate(
        self, source: nodes.Template, name: str | None, filename: str | None, defer_init: bool = False
    ) -> str:
        rewrite(source)
        return super()._generate(source, name, filename, defer_init)

    # --- What `rewriting` writes ---
    def compare(self, operator: str, left: Any, right: Any) -> Any:
        if operator in ("in", "notin"):
            return contains(left, right) == (operator == "in")
        return compared(_OPERATORS[operator], left, right)

    def join_texts(self, values: Sequence[Any]) -> str:
        return joined([value if isinstance(value, str) else str(value) for value in values])

    def slice_of(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        if not isinstance(value, Symbol):
            start, stop, step = fixed(start), fixed(stop), fixed(step)
        return value[start:stop:step]

    def loop_over(self, value: Any, number: int, outer: Sequence[Any]) -> Any:
        """What a loop iterates over. `number`: of the loop in the template; `outer`: what it reads from outside."""
        log = recorder()
        if type(value) is Messages:
            if log.frame is not log.top:
                return value
            return MessageLoop(value, (number, value._expression, tuple(map(_outer, outer))))
        if type(value) in (Values, Items) and number not in log.tries.unrolled:
            try:
                key = (number, log.frame.depth, type(value).__name__, tuple(map(_outer, outer)))
            except Unloggable:
                log.tries.unrolled.add(number)
            else:
                return NestedLoop(value, number, key)
        return value

    # --- Attributes, items, calls ---
    def getattr(self, obj: Any, attribute: str) -> Any:
        if type(obj) is SymbolicNamespace:
            return read(obj, attribute, self.undefined)
        if isinstance(obj, Record) and attribute not in _OF_DICTS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        value = super().getattr(obj, attribute)
        return self.undefined("there is no such item") if value is UNDEFINED_ITEM else value

    def getitem(self, obj: Any, argument: Any) -> Any:
        if type(obj) is SymbolicNamespace:
            return read(obj, argument, self.undefined)
        if not isinstance(obj, Symbol):
            argument = fixed(argument)
        value = super().getitem(obj, argument)
        return self.undefined("there is no such item") if value is UNDEFINED_ITEM else value

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise Unloggable(f"the attribute {attribute!r} of {type(obj).__name__!r}")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        owner, name = value.__self__, value.__name__

        def formatted(*args: Any, **kwargs: Any) -> str:
            safe = ImmutableSandboxedEnvironment.wrap_str_format(self, getattr(fixed(owner), name))
            if safe is None:
                raise Unloggable(name)
            return safe(*map(fixed, args), **{key: fixed(item) for key, item in kwargs.items()})

        return formatted

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(__obj, "__self__", None)
        if owner is __self:
            return __obj(*args)  # what `rewriting` wrote
        passed = {name: value for name, value in kwargs.items() if name not in _OF_CONTEXT}
        if type(owner) is str and (is_symbol(args) or is_symbol(passed) or __obj.__name__ == "join"):
            __obj = getattr(as_text(owner), __obj.__name__)  # C code would read a value past the log
        if isinstance(owner, str | list | dict) or __obj is SymbolicNamespace:
            kwargs = passed
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if not is_symbol(left) and not is_symbol(right):
            return super().call_binop(context, operator, left, right)
        if isinstance(left, SafeText) or isinstance(right, SafeText):
            raise Unloggable("a text that is marked as safe escapes what is joined to it")
        texts = isinstance(left, str) and isinstance(right, str)
        if operator == "+" and texts:
            return joined((left, right))
        if operator == "+" and isinstance(left, list) and isinstance(right, list):
            return list(left) + list(right)
        numbers = type(left) in (int, Whole) and type(right) in (int, Whole)
        if (
            operator == "%"
            and type(left) is str
            and isinstance(right, Text)
            and left.count("%") == 1 == left.count("%s")
        ):
            before, after = left.split("%s")
            return joined((before, right, after))
        if not (numbers and operator in "+-*%"):
            left, right = fixed(left), fixed(right)
        return super().call_binop(context, operator, left, right)

    # --- Filters that need the environment ---
    def _first(self, values: Any) -> Any:
        return self._at_end(values, 0)

    def _last(self, values: Any) -> Any:
        return self._at_end(values, -1)

    def _at_end(self, values: Any, place: int) -> Any:
        if isinstance(values, Undefined):
            return self.undefined("no item")
        items = values if isinstance(values, Messages | Parts) else list(values)
        return items[place] if items else self.undefined("no item")

    def _items(self, value: Any) -> Any:
        if isinstance(value, Undefined):
            return []
        if not isinstance(value, dict):
            raise TypeError("Can only get item pairs from a mapping.")
        return value.items()


def loop_context(iterable: Any, undefined: Any, recurse: Any = None, depth0: int = 0) -> Any:
    """What compiled templates make of an iterable for `loop`."""
    if type(iterable) is NestedLoop:
        return LoopOverItems(iterable)
    if type(iterable) is MessageLoop:
        return LoopOverMessages(iterable)
    return LoopContext(list(iterable), undefined, recurse, depth0)


def _outer(value: Any) -> Any:
    """What a loop reads from outside, as a part of the key of its trie."""
    if type(value) is SymbolicNamespace:
        if value._round is not None:
            raise Unloggable("a namespace of a round")
        return "namespace", value._number
    if type(value).__name__ in ("Macro", "function", "type", "method"):
        return "object", getattr(value, "name", None) or getattr(value, "__name__", type(value).__name__)
    return expression_of(value)  # raises for a generator, a cycler …: a state that no namespace holds


def _written(value: Any) -> Any:
    return value if isinstance(value, str) or not recording() else str(value)


def _of_fixed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test that holds for the very values."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def of_fixed(*args: Any, **kwargs: Any) -> Any:
        values = map(fixed, args[first:])
        return function(*args[:first], *values, **{name: fixed(value) for name, value in kwargs.items()})

    return of_fixed


def _comparing(how: str) -> Callable[[Any, Any], Any]:
    return lambda left, right: compared(how, left, right)


def _hidden(what: str) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise Unloggable(what)

    return refuse


def _length(value: Any) -> Any:
    if type(value) is Messages:
        return value._length()
    if isinstance(value, Text):
        return Whole(str.__len__(value), (0, ((("len", value._expression), 1),)))
    return len(value)


def _join(values: Any, d: Any = "", attribute: Any = None) -> str:
    if attribute is not None:
        raise Unloggable("join by an attribute")
    out: list[Any] = []
    for value in values:
        if out:
            out.append(d)
        out.append(value if isinstance(value, str) else str(value))
    return joined(out)


def _replace(value: Any, old: Any, new: Any, count: Any = None) -> Any:
    return as_text(value).replace(old, new, *([] if count in (None, -1) else [count]))


def _to_json(
    value: Any, ensure_ascii: Any = False, indent: Any = None, separators: Any = None, sort_keys: Any = False
) -> str:
    options = {
        "ensure_ascii": fixed(ensure_ascii),
        "indent": fixed(indent),
        "separators": tuple(fixed(separators)) if separators else None,
        "sort_keys": fixed(sort_keys),
    }
    text = json.dumps(plain(value), **options)
    return Text(text, ("json", expression_of(value), tuple(options.items()))) if is_symbol(value) else text


def _raise_exception(message: Any) -> NoReturn:
    raise jinja2.TemplateError(str(message))
