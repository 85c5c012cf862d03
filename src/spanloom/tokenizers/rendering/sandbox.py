"""Jinja's sandbox with the functions that chat templates use.

In: the source of a template. Out: a `Compiled`, which renders values in one of three ways (`PLAIN`, `TRACED`,
`MARKED`). The code is compiled once. Limits are those of the process (`serve.py`).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import wraps
from types import CodeType
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from spanloom.tokenizers.rendering.wire import BEGIN_GENERATION, END_GENERATION, MARKED, PLAIN, TRACED
from spanloom.tokenizers.traced_text import TracedText, brace_formatted, joined, json_text

USED_LATER = ("encodings.unicode_escape", "html", "jinja2.debug", "pprint", "textwrap", "unicodedata")
"""Modules that Jinja, or Python for a text of a template, imports at first use."""

TEMPLATE_FILE = "<template>"
"""The file of the compiled code, in tracebacks; Jinja's own choice for a template without a name."""

_OF_DICTS = frozenset(dir(dict))

_OF_TEXTS = frozenset({name for name in dir(str) if not name.startswith("_")} - {"format", "format_map"})
"""Methods of texts that are safe to read and call. `format` and `format_map` read attributes: Jinja wraps them."""

_OF_CONTEXT = frozenset({"_loop_vars", "_block_vars"})
"""Keyword arguments that compiled templates add to each call, for functions that ask for the context."""

_OF_LOOPS = frozenset({"first", "last", "index", "index0", "length", "previtem", "nextitem", "revindex", "revindex0"})
"""Values of `loop` that templates read most."""

_TEXTS = frozenset({str, TracedText})
_NOTHING: frozenset[str] = frozenset()


class RaisedError(jinja2.TemplateError):
    """The template called `raise_exception`."""


class _Dict:
    """`dict`, without the attributes of the class."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _Namespace(Namespace):
    """`namespace`, without names that begin with an underscore: such an object could pass for one of Python's."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # a namespace may have a `self`
        for name in dict(*args[1:], **kwargs):
            _check_public(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_public(name)
        super().__setitem__(name, value)


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}`, which transformers uses for masks. The body is unchanged.

    Around it are written two attributes of the environment, which are empty except for `MARKED`.
    """

    tags = {"generation"}  # noqa: RUF012  # Jinja declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        begin, end = (
            nodes.Output([nodes.EnvironmentAttribute(name)]).set_lineno(line)
            for name in ("begin_generation", "end_generation")
        )
        return nodes.Scope([begin, *body, end]).set_lineno(line)


class _CodeGenerator(CodeGenerator):
    """Computes nothing while it compiles: what is computed later has a line."""

    def _output_child_to_const(self, node: nodes.Expr, *more: Any) -> str:
        if not isinstance(node, nodes.TemplateData | nodes.Const):
            raise nodes.Impossible
        return super()._output_child_to_const(node, *more)


class Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox as transformers configures it."""

    code_generator_class = _CodeGenerator
    begin_generation = end_generation = ""

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, LoopControlExtension],
            optimized=False,
            cache_size=0,
        )
        self.filters["tojson"] = _to_json
        del self.filters["random"]
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": _raise_exception, "dict": _Dict(), "namespace": _Namespace}

    def getattr(self, obj: Any, attribute: str) -> Any:
        # Templates mostly read keys of messages. Jinja would try an attribute first, which raises internally.
        if type(obj) is dict and attribute not in _OF_DICTS:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if attribute in _safe_names(type(obj)):
            return getattr(obj, attribute)
        if type(obj) is _Namespace and not attribute.startswith("_") and hasattr(obj, attribute):
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        # Jinja's version returns an undefined value, which prints as nothing and hides the attempt.
        raise SecurityError(f"the attribute {attribute!r} of {type(obj).__name__!r}")

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        if type(getattr(__obj, "__self__", None)) in _TEXTS and __obj.__name__ in _OF_TEXTS:
            passed = {name: value for name, value in kwargs.items() if name not in _OF_CONTEXT} if kwargs else kwargs
            return __obj(*args, **passed)
        return super().call(__context, __obj, *args, **kwargs)


class _TracedEnvironment(Environment):
    """Joins, filters and formats keep the marks of texts (`traced_text.py`)."""

    concat = staticmethod(joined)  # joins the output of compiled templates, macros and blocks

    def __init__(self) -> None:
        super().__init__()
        self.filters["tojson"] = json_text
        for name in ("join", "replace", "format"):
            self.filters[name] = _keeping_marks(name, self.filters[name])
        self.filters["safe"] = _unescaped

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(__obj, "__self__", None)
        if type(owner) is str and __obj.__name__ in {"join", "replace"}:
            __obj = getattr(TracedText(owner), __obj.__name__)
        return super().call(__context, __obj, *args, **kwargs)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`format` and `format_map` of a text, which Jinja replaces by functions that check attributes."""
        safe = super().wrap_str_format(value)
        if safe is None:
            return None
        by_map = value.__name__ == "format_map"

        def keeping(*args: Any, **kwargs: Any) -> str:
            text = safe(*args, **kwargs)
            return brace_formatted(value.__self__, () if by_map else args, args[0] if by_map else kwargs, text)

        return keeping


class _MarkedEnvironment(Environment):
    begin_generation, end_generation = BEGIN_GENERATION, END_GENERATION


_KINDS: Mapping[str, type[Environment]] = {PLAIN: Environment, TRACED: _TracedEnvironment, MARKED: _MarkedEnvironment}
_environments: dict[str, Environment] = {}


def _environment(how: str) -> Environment:
    if how not in _environments:
        _environments[how] = _KINDS[how]()
    return _environments[how]


class Compiled:
    """A compiled template. `now`: the time of `strftime_now`, which is undefined without it.

    Raises what Jinja and Python's compiler raise: TemplateSyntaxError, RecursionError, SyntaxError and others.
    """

    def __init__(self, text: str, now: datetime | None) -> None:
        self._text = text
        self._given = {} if now is None else {"strftime_now": now.strftime}
        self._code: CodeType = _environment(PLAIN).compile(text)
        self._bound = {PLAIN: self._bind(PLAIN)}

    def _bind(self, how: str) -> jinja2.Template:
        environment = _environment(how)
        given = environment.make_globals(self._given)
        template = environment.template_class.from_code(environment, self._code, given, None)
        if how == TRACED:  # `~` of compiled code is a function of Jinja's, not of the environment
            template.root_render_func.__globals__["str_join"] = _join_values
        return template

    @property
    def lines(self) -> str:
        """Jinja's table of lines, `template=code&…`, for `line_of`."""
        return self._bound[PLAIN]._debug_info

    def render(self, values: Mapping[str, Any], how: str) -> str:
        """The text; a TracedText if `how` is TRACED and a mark is left. Raises whatever the template raises."""
        if how not in self._bound:
            self._bound[how] = self._bind(how)
        template = self._bound[how]
        # Not `Template.render`: it rewrites tracebacks, which takes memory when there is none left.
        return template.environment.concat(template.root_render_func(template.new_context(dict(values))))

    def variables(self) -> list[str]:
        """The names that the template reads and does not set itself."""
        return sorted(find_undeclared_variables(_environment(PLAIN).parse(self._text)))


def template_lines(fault: BaseException) -> Iterator[int]:
    """The lines of compiled code in a traceback, outermost first."""
    step = fault.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == TEMPLATE_FILE:
            yield step.tb_lineno
        step = step.tb_next


def _safe_names(kind: type) -> frozenset[str]:
    """Attributes that need no further check; templates mostly read these."""
    return _OF_TEXTS if kind in _TEXTS else _OF_LOOPS if kind is LoopContext else _NOTHING


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _join_values(values: Iterable[Any]) -> str:
    return joined([str(value) for value in values])


def _check_public(name: str) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"the name {name!r} in a namespace")


def _raise_exception(message: Any) -> NoReturn:
    raise RaisedError(str(message))


def _unescaped(value: Any) -> str:
    """`safe` makes a Markup, which has no marks. Nothing is escaped here."""
    return value if isinstance(value, str) else str(value)


def _keeping_marks(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose text, on which it calls the method, is a TracedText."""
    # `join` and `replace` are given an evaluation context first.
    place = (1 if hasattr(function, "jinja_pass_arg") else 0) + (name == "join")

    @wraps(function)
    def keeping(*args: Any, **kwargs: Any) -> Any:
        if len(args) > place:
            if type(args[place]) is str:
                args = (*args[:place], TracedText(args[place]), *args[place + 1 :])
        elif name == "join":
            kwargs = {**kwargs, "d": TracedText(kwargs.get("d", ""))}
        return function(*args, **kwargs)

    return keeping
