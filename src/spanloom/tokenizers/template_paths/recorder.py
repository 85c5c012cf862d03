"""What a rendering tests and writes, recorded into tries of paths.

In: tests with their outcomes, pieces of text, loops. Out: a trie. A node has the test that follows; each outcome leads
to another node; a leaf has what was written. A loop over messages is one node of the trie of the whole template, with a
trie of its own for its body: a path is one of a message. Raises Diverged if a rendering that has the outcomes of an
earlier one makes another test or writes something else: a test was not logged.
"""

from contextvars import ContextVar
from typing import Any

from spanloom.tokenizers.template_paths.expressions import Diverged, Evaluate, Expression, Form, Unloggable
from spanloom.tokenizers.template_paths.reach import Reach, reach_of

Slot = tuple[int, str]
"""An attribute of a namespace: the number of the namespace, the name."""


class Leaf:
    """The end of a path. `out`: expressions of what is written; `sets`: the attributes of namespaces that it writes;
    `breaks`: whether the loop ends here; `text`, `state`: their functions, once compiled; `way`: what `prefixes` knows
    of the tests before it; `number`: of `out`, see `Paths.number`."""

    __slots__ = ("breaks", "data", "number", "out", "sets", "state", "text", "way")

    def __init__(self, out: tuple[Expression, ...], sets: tuple[tuple[Slot, Expression], ...], breaks: bool) -> None:
        self.out, self.sets, self.breaks = out, sets, breaks
        self.text: Evaluate | None = None
        self.state: Evaluate | None = None
        self.data: Any = None
        self.way: Any = None
        self.number: int | None = None


class Node:
    """A place in a trie: the next `test` and its `outcomes`; or a `leaf`; or a loop over messages, see `Loop`."""

    __slots__ = ("evaluate", "leaf", "loop", "outcomes", "reach", "test")

    def __init__(self) -> None:
        self.test: Expression | None = None
        self.evaluate: Evaluate | None = None
        self.outcomes: dict[Any, Node] = {}
        self.leaf: Leaf | None = None
        self.loop: Loop | None = None
        self.reach: Reach | None = None  # of its test, once it is known


class Loop:
    """A loop over messages[first : n - less], backwards if `step` is -1. `before`: attributes of namespaces that are
    written before it, and `state` their function, once compiled; `body`: the trie of a message; `after`: the node
    behind the loop."""

    __slots__ = ("after", "before", "body", "first", "less", "state", "step")

    def __init__(
        self, view: tuple[int, int, int], before: tuple[tuple[Slot, Expression], ...], body: Node, after: Node
    ) -> None:
        self.first, self.less, self.step = view
        self.before, self.body, self.after = before, body, after
        self.state: Evaluate | None = None

    @property
    def view(self) -> tuple[int, int, int]:
        return self.first, self.less, self.step

    def places(self, count: int) -> range:
        """The places of its messages, in its order."""
        end = count - self.less
        return range(self.first, end) if self.step == 1 else range(end - 1, self.first - 1, -1)


class Frame:
    """What is being recorded: the whole template, a message, or an item of a nested loop."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.known: dict[Expression, Any] = {}
        self.out: list[Expression] = []
        self.sets: dict[Slot, Any] = {}
        self.depth = -1
        self.loop: int | None = None  # the number of the nested loop
        self.item = (0, 0)  # its place, and how many there are


class UnrollError(Exception):
    """A nested loop reads or writes what only a loop that is unrolled can."""


class Tries:
    """What is known of a template: `roots` by whether the generation prompt is wanted; the tries of loops over
    messages, by what they read from outside; those of nested loops; the numbers of loops that are unrolled."""

    def __init__(self) -> None:
        self.unrolled: set[int] = set()
        self.forget()

    def forget(self) -> None:
        self.roots: dict[bool, Node] = {False: Node(), True: Node()}
        self.bodies: dict[Any, Node] = {}
        self.nested: list[Node] = []
        self.numbers: dict[Any, int] = {}

    def nested_loop(self, key: Any) -> int:
        """The number of the trie of a nested loop."""
        if key not in self.numbers:
            self.numbers[key] = len(self.nested)
            self.nested.append(Node())
        return self.numbers[key]


class Recorder:
    """The recording of one rendering. `state`: values of attributes of namespaces, which loops write."""

    def __init__(self, tries: Tries, root: Node, messages: list[dict[str, Any]]) -> None:
        self.tries, self.messages = tries, messages
        self.top = self.frame = Frame(root)
        self.place = 0
        self.state: dict[Slot, Any] = {}
        self.states: list[dict[Slot, Any]] = []  # after each loop
        self.assigned: dict[Slot, Any] = {}  # written before the next loop
        self.namespaces = 0
        self._broken: list[Frame] = []

    def test(self, test: Expression, outcome: Any) -> Any:
        """Records a test. Returns its outcome, as it was when it was first made in this frame."""
        frame = self.frame
        if test in frame.known:
            return frame.known[test]
        self._check_local(test)
        node = frame.node
        if node.leaf is not None or node.loop is not None:
            raise Diverged(f"an end of a path tests {test}")
        if node.test is None:
            node.test = test
        elif node.test != test:
            raise Diverged(f"{node.test} or {test}")
        if outcome not in node.outcomes:
            node.outcomes[outcome] = Node()
        frame.node = node.outcomes[outcome]
        frame.known[test] = outcome
        return outcome

    def write(self, expression: Expression) -> None:
        """Records a piece of the text. Constants that follow one another become one."""
        self._check_local(expression)
        for part in expression[1] if expression[0] == "cat" else (expression,):
            append(self.frame.out, part)

    def _check_local(self, expression: Expression) -> None:
        """A nested loop is shared by messages: it may read its items, and what does not change between messages."""
        if self.frame.loop is not None and not reach_of(expression).local:
            raise UnrollError(self.frame.loop)

    def value_of(self, form: Form) -> int:
        """The value of a linear form in this rendering."""
        return form[0] + sum(factor * self._atom(atom) for atom, factor in form[1])

    def _atom(self, atom: Any) -> int:
        if atom == "i":
            return self.place
        if atom == "n":
            return len(self.messages)
        value: Any
        if atom[0] == "ns":
            value = self.state.get(atom[1])
        elif atom[0] == "nsv":
            value = self.states[atom[1]].get(atom[2])
        elif atom[0] == "mod":
            value = self.value_of(atom[1]) % atom[2]
        else:
            raise Unloggable(f"an index by {atom[0]}")
        return int(value)

    def end(self, frame: Frame, sets: tuple[tuple[Slot, Expression], ...] = (), *, breaks: bool = False) -> None:
        """Ends a path."""
        node = frame.node
        if node.test is not None or node.loop is not None:
            raise Diverged("a path ends where another one tests")
        leaf = (tuple(frame.out), sets, breaks)
        if node.leaf is None:
            node.leaf = Leaf(*leaf)
        elif (node.leaf.out, node.leaf.sets, node.leaf.breaks) != leaf:
            raise Diverged("two paths with equal outcomes write different texts")

    def end_later(self, frame: Frame) -> None:
        """Ends a path that leaves its loop: by `break`, or because the template raises, which is known at the end."""
        self._broken.append(frame)

    def finish(self, sets_of: Any) -> None:
        """Ends the paths that left their loops, and that of the template. `sets_of`: a frame → what it sets."""
        for frame in self._broken:
            self.end(frame, sets_of(frame), breaks=True)
        self.end(self.top)

    def begin_loop(self, view: tuple[int, int, int], before: tuple[tuple[Slot, Expression], ...], key: Any) -> Loop:
        node = self.top.node
        if node.loop is None:
            if node.test is not None or node.leaf is not None:
                raise Diverged("a loop where another path tests")
            node.loop = Loop(view, before, self.tries.bodies.setdefault(key, Node()), Node())
        elif (node.loop.view, node.loop.before) != (view, before):
            raise Diverged("another loop")
        return node.loop

    def end_loop(self, loop: Loop) -> None:
        self.frame = self.top
        self.top.node = loop.after
        self.top.out.append(("loop", len(self.states)))
        self.states.append(dict(self.state))


_CURRENT: ContextVar[Recorder | None] = ContextVar("_CURRENT", default=None)


def recorder() -> Recorder:
    """The recorder of the current rendering."""
    current = _CURRENT.get()
    if current is None:
        raise Unloggable("a value is read outside of a rendering")
    return current


def recording() -> bool:
    return _CURRENT.get() is not None


def record(current: Recorder | None) -> None:
    _CURRENT.set(current)


def append(out: list[Expression], part: Expression) -> None:
    """Appends an expression of a text; constants become one, and empty ones are left out."""
    if part[0] == "k":
        if not part[1]:
            return
        if out and out[-1][0] == "k":
            out[-1] = ("k", out[-1][1] + part[1], "str")
            return
    out.append(part)
