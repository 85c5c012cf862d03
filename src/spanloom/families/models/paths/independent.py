"""Paths that do not depend on the texts of a run: with other texts in their place, the template takes the same path.

In: the known paths of a template. Out: leaves on which that is not sure. Method S of the full proof replaces the texts
of a run by words and refuses a run whose frame changes; where a path may have changed too, the full proof decides.

A text is replaced by a word of letters and digits, and the white space around it stays. So a test for types, or for
blankness, has the same outcome, and so has one that did not find a constant in the text.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from spanloom.families.models.paths.leaves import NoRule, leaves_of
from spanloom.families.models.prove.fields import CHARACTERS_OF_WORDS
from spanloom.tokenizers.template_paths.expressions import ITEM, PLACE, TOOLS, Expression
from spanloom.tokenizers.template_paths.paths import Paths
from spanloom.tokenizers.template_paths.recorder import Leaf, Loop, Node

_TYPES = frozenset({"code", "keys", "values", "list", "role"})
_STRIPS = frozenset({"strip", "lstrip", "rstrip"})
_FINDS = frozenset({"startswith", "endswith"})


class Independent:
    """What depends on texts in the paths that are known now."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._renderings = -1
        self._far = False  # whether tests that are not of one message read texts
        self._leaves: set[int] = set()  # of messages, by identity
        self._bodies: dict[int, bool] = {}  # loops over messages, by the identity of their root
        self._nested: dict[int, bool] = {}  # loops over calls and arguments, by number
        self._numbers: set[int] = set()  # of messages that a test reads by number

    def check(self, leaf: Leaf, before: Iterable[Loop], run: int) -> None:
        """Raises NoRule unless the path of a run's `leaf`, and whatever looks at its message from elsewhere, are the
        same with other texts. `before`: the loops that run before the one that writes."""
        if self._renderings != self._paths.renderings:
            self._look()
        changes = (
            self._far
            or id(leaf) in self._leaves
            or run in self._numbers
            or any(self._bodies[id(loop.body)] for loop in before)
            or any(map(self._is_nested_changing, _loops_of(leaf)))
        )
        if changes:
            raise NoRule("the path depends on a text of the run")

    def _look(self) -> None:
        tries = self._paths.tries
        self._leaves, self._bodies, self._nested, self._numbers = set(), {}, {}, set()
        self._far = self._changes(tries.roots[False], whole=True)
        for body in tries.bodies.values():
            self._bodies[id(body)] = self._changes(body)
        self._renderings = self._paths.renderings

    def _is_nested_changing(self, number: int) -> bool:
        if number not in self._nested:
            root = self._paths.tries.nested[number]
            inner = {each for leaf in leaves_of(root) for each in _loops_of(leaf)}
            self._nested[number] = self._changes(root) or any(map(self._is_nested_changing, inner))
        return self._nested[number]

    def _changes(self, root: Node, *, whole: bool = False) -> bool:
        """Whether a test of a trie may have another outcome with other texts; leaves behind one are noted. Behind a
        test that finds another role than the assistant's, the message is no run. `whole`: the trie of the template."""
        found = False
        waiting = [(root, False, False)]
        while waiting:
            node, other_role, behind = waiting.pop()
            if node.loop is not None:
                waiting.append((node.loop.after, other_role, behind))
                found |= any(self._reads(each, other_role, whole) for _, each in node.loop.before)
            if node.leaf is not None:
                if behind:
                    self._leaves.add(id(node.leaf))
                found |= not other_role and any(self._reads(each, other_role, whole) for _, each in node.leaf.sets)
            for outcome, following in node.outcomes.items():
                assert node.test is not None
                other = other_role or (node.test[:2] == ("role", ("M", PLACE)) and outcome != "assistant")
                changes = not _is_fixed(node.test, outcome) and self._reads(node.test, other, whole)
                found |= changes
                waiting.append((following, other, behind or changes))
        return found

    def _reads(self, expression: Expression, other_role: bool, whole: bool) -> bool:
        """Whether a test or value may read a text of the run."""
        reads = False
        for form in _messages(expression):
            if form is None or (form == PLACE and not other_role):
                reads = True
            elif form is _STATE:
                reads |= whole
            elif not form[1]:
                self._numbers.add(form[0])
            elif form != PLACE and not (form[0] < 0 and dict(form[1]) == {"i": 1}):  # not a message before
                self._far = reads = True
        return reads


_STATE = (0, (("state", 1),))
"""Stands for an attribute of a namespace, which may hold a text, where `_messages` gives linear forms."""


def _messages(expression: Any) -> Iterator[Any]:
    """The messages whose values an expression reads, by their linear form; None for items of nested loops."""
    if not isinstance(expression, tuple) or not expression:
        return
    if expression[0] == "len" and expression[1][0] == "get" and expression[1][2] == "tool_calls":
        return  # how many calls there are is no text
    if expression[0] in ("ns", "nsv"):
        yield _STATE
    elif expression[0] == "M":
        yield expression[1]
    elif expression[0] == "x":
        yield from (None,) if expression[2] == ITEM else ()
    else:
        for part in expression:
            yield from _messages(part)


def _loops_of(leaf: Leaf) -> Iterator[int]:
    """The numbers of the loops in what a leaf writes, but for those over tools."""
    for each in leaf.out:
        if each[0] == "sub" and each[2] != TOOLS:
            yield each[1]


def _is_fixed(test: Expression, outcome: Any) -> bool:
    """Whether a test has this outcome for each word in place of the text."""
    kind = test[0]
    if kind in _TYPES:
        return True
    if kind == "bool" and _is_stripped(test[1]):
        return True
    if kind == "m" and test[1] in _FINDS and _is_stripped(test[2]):
        return outcome is False and all(map(_is_no_word, test[3]))
    if kind == "in" and _is_stripped(test[2]):
        return outcome is False and _is_no_word(test[1])
    if kind == "==" and _is_stripped(test[1]):
        return outcome is False and _is_no_word(test[2])
    return False


def _is_stripped(expression: Expression) -> bool:
    """Whether an expression is a value as it is, or without white space at its ends."""
    while expression[0] == "m" and expression[1] in _STRIPS:
        if any(each[0] != "k" or (each[1] or "").strip() for each in expression[3]):
            return False
        expression = expression[2]
    return expression[0] in ("get", "x")


def _is_no_word(expression: Expression) -> bool:
    """Whether an expression is a constant that no word holds."""
    return (
        expression[0] == "k"
        and isinstance(expression[1], str)
        and bool(set(expression[1].strip()) - CHARACTERS_OF_WORDS)
    )
