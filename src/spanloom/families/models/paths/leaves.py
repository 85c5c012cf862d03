"""What a leaf writes: the texts of its message, calls, tools, or something that no rule covers.

In: a leaf of a template's paths. Out: `Written`, with the kind of each part. Raises NoRule for a part that no rule
covers: a text that is changed, or that is of another message.
"""

from dataclasses import dataclass
from typing import Any

from spanloom.tokenizers.template_paths.expressions import ITEM, PLACE, TOOLS, Evaluate, Expression
from spanloom.tokenizers.template_paths.paths import Paths
from spanloom.tokenizers.template_paths.reach import reach_of
from spanloom.tokenizers.template_paths.recorder import Leaf, Node

LITERAL, CONTENT, REASONING, CALLS, TOOL_LIST = "literal", "content", "reasoning", "calls", "tools"
_ME: Expression = ("M", PLACE)
_FIELDS = {"content": CONTENT, "reasoning_content": REASONING, "reasoning": REASONING, "thinking": REASONING}
_STRIPS = ("strip", "lstrip", "rstrip")


class NoRule(Exception):
    """The path of a conversation says too little. The message is the reason, for the count of such conversations."""


@dataclass(frozen=True)
class Part:
    """A part of what a leaf writes. `text`: its function; `message`: the place of another message that it is of."""

    kind: str
    text: Evaluate
    message: int | None = None


@dataclass(frozen=True)
class Written:
    """The parts of a leaf, in order. `kinds`: what it writes of its own message; `by_item`: whether it writes arguments
    of calls one by one; `foreign`: whether it writes texts of another message or tools."""

    parts: tuple[Part, ...]
    kinds: frozenset[str]
    by_item: bool
    foreign: bool


def written(paths: Paths, out: tuple[Expression, ...]) -> Written:
    """The parts of what a leaf writes. Raises NoRule."""
    parts = tuple(_part(paths, each) for each in out)
    own = [part.kind for part in parts if part.message is None and part.kind in (CONTENT, REASONING, CALLS)]
    if len(own) != len(set(own)):
        raise NoRule("a text is written twice")
    by_item = any(
        _writes_by_item(leaf) for each in out if each[0] == "sub" for leaf in leaves_of(paths.tries.nested[each[1]])
    )
    foreign = any(part.message is not None or part.kind == TOOL_LIST for part in parts)
    return Written(parts, frozenset(own), by_item, foreign)


def _part(paths: Paths, each: Expression) -> Part:
    text = paths.compiler.of(each)
    if each[0] == "k":
        return Part(LITERAL, text)
    looks = reach_of(each)
    if looks.slots or looks.far or looks.near or looks.later:
        raise NoRule("a text depends on state")
    if each[0] == "sub" and each[2] == ("get", _ME, "tool_calls"):
        _check_calls(paths, paths.tries.nested[each[1]])
        return Part(CALLS, text)
    if _only_tools(each):
        return Part(TOOL_LIST, text)
    inner = each
    while inner[0] == "m" and inner[1] in _STRIPS and all(a[0] == "k" and not (a[1] or "").strip() for a in inner[3]):
        inner = inner[2]
    if inner[0] == "get" and inner[1][0] == "M" and inner[2] in _FIELDS:
        constant, factors = inner[1][1]
        if inner[1] == _ME:
            return Part(_FIELDS[inner[2]], text)
        if not factors and inner[2] == "content":
            return Part(CONTENT, text, message=constant)
    raise NoRule("a text is changed, or is of another message")


def _only_tools(each: Any) -> bool:
    """Whether an expression is of the tools alone."""
    if each == TOOLS:
        return True
    if each[0] == "sub":
        return _only_tools(each[2])
    return each[0] in ("json", "get") and _only_tools(each[1])


_CALL: Expression = ("x", 0, ITEM)
_FUNCTION: Expression = ("get", _CALL, "function")
_NAME: Expression = ("get", _FUNCTION, "name")
_ARGUMENTS: Expression = ("get", _FUNCTION, "arguments")
_KEY: Expression = ("get", ("x", 1, ITEM), 0)
_VALUE: Expression = ("get", ("x", 1, ITEM), 1)


def leaves_of(root: Node) -> list[Leaf]:
    """All leaves of a trie."""
    found, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        if node.leaf is not None:
            found.append(node.leaf)
        waiting.extend(node.outcomes.values())
    return found


def _check_calls(paths: Paths, root: Node) -> None:
    """Raises NoRule unless each known path of a call writes its name and its arguments once, and nothing else of it."""
    for leaf in leaves_of(root):
        references = [each for each in leaf.out if each[0] != "k"]
        arguments = [each for each in references if each != _NAME]
        if references.count(_NAME) != 1 or len(arguments) != 1:
            raise NoRule("a call is written in a form without a rule")
        if _is_items(arguments[0]):
            _check_items(paths.tries.nested[arguments[0][1]])
        elif not _is_text_of(arguments[0], _ARGUMENTS):
            raise NoRule("a call is written in a form without a rule")


def _check_items(root: Node) -> None:
    """Raises NoRule unless each known path of an argument writes its name, then its value or a constant for it."""
    for leaf in leaves_of(root):
        references = [each for each in leaf.out if each[0] != "k"]
        if references[:1] != [_KEY] or not all(_is_text_of(each, _VALUE) for each in references[1:2]) or references[2:]:
            raise NoRule("an argument is written in a form without a rule")


def _is_items(each: Expression) -> bool:
    return bool(each[0] == "sub" and each[2] == ("items", _ARGUMENTS))


def _writes_by_item(leaf: Leaf) -> bool:
    return any(map(_is_items, leaf.out))


def _is_text_of(each: Expression, value: Expression) -> bool:
    """Whether an expression writes a value as it is, or as JSON; a whole number is a linear form."""
    inner = each[1] if each[0] in ("json", "str") else each
    return inner in (value, ("int", (0, ((value, 1),))))
