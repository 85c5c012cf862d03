"""The paths of all prefixes of a conversation, in time linear in its messages.

In: known paths, a conversation. Out: for a prefix of n messages, the leaves of the template and of its messages.
A message is walked once. What looks at the end (`loop.last`) is tested again for the last messages of each prefix; what
reads state that depends on the end (the place of the last question), when that state has changed so far that it
matters. Prefixes are walked in increasing order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any

from spanloom.tokenizers.template_paths.expressions import UnknownPath, code
from spanloom.tokenizers.template_paths.paths import Message, Paths
from spanloom.tokenizers.template_paths.reach import NEAREST, Reach, reach_of
from spanloom.tokenizers.template_paths.recorder import Leaf, Loop, Node

State = dict[Any, Any]


class NotLinear(Exception):
    """A template that does not write its messages in one loop, in their order."""


@dataclass(slots=True)
class Prefix:
    """The path of a prefix. `top`: the leaf of the template; `first`: the place of the first message of the loop that
    writes; `leaves`: of its messages; `states`: after each loop."""

    top: Leaf
    first: int
    leaves: Sequence[Leaf]
    states: "_States"


def reach(node: Node) -> Reach:
    """How far the test of a node looks."""
    if node.reach is None:
        if node.test is None:
            raise UnknownPath
        node.reach = reach_of(node.test)
    return node.reach


class Prefixes:
    """The prefixes of one conversation."""

    def __init__(self, paths: Paths, messages: Sequence[Message], tools: Sequence[Any] | None) -> None:
        self.paths, self.messages, self.tools = paths, messages, tools
        self._written: dict[int, _Written] = {}
        self._before: dict[int, _Before] = {}
        self._tops: dict[bool, tuple[Leaf, list[Loop]]] = {}  # by `prompt`, if the same for all longer prefixes
        self._states: _States | None = None  # of the last prefix

    def prefix(self, n: int, *, prompt: bool) -> Prefix:
        """The path of the first n messages. Raises UnknownPath, NotLinear."""
        states = _States(self, n)
        top = self._top(n, prompt, states)
        loops = states.loops
        if self._states is not None and self._states.n == n and self._states.loops == loops:
            states = self._states  # of the other value of `prompt`
        self._states = states
        if not loops or loops[-1].step != 1 or loops[-1].less:
            raise NotLinear("a template without a loop over all messages")
        main = loops[-1]
        written = self._written.get(id(main.body))
        if written is None:
            written = self._written[id(main.body)] = _Written(self, main)
        before = states.before(len(loops) - 1)
        if any(self._before[id(loop)].writes for loop in loops[:-1]):
            raise NotLinear("a loop that writes before the one over all messages")
        return Prefix(top, main.first, written.leaves(n, before, states), states)

    def _top(self, n: int, prompt: bool, states: "_States") -> Leaf:
        """The leaf of the template. Its loops are added to `states`. Raises UnknownPath."""
        if (known := self._tops.get(prompt)) is not None:
            states.loops = known[1]
            return known[0]
        node, same = self.paths.tries.roots[prompt], n > NEAREST
        while node.leaf is None:
            if node.loop is not None:
                states.loops.append(node.loop)
                node = node.loop.after
            else:
                looks = reach(node)
                same &= not (looks.far or looks.slots or looks.later)
                node = self.paths.next(node, self.messages, None, None, n, None, self.tools, states)
        if same:
            self._tops[prompt] = node.leaf, states.loops
        return node.leaf

    def before(self, loop: Loop, n: int, state: State, states: "_States") -> State:
        """The state after a loop that writes nothing but state."""
        walked = self._before.get(id(loop))
        if walked is None:
            walked = self._before[id(loop)] = _Before(self, loop)
        return walked.state(n, state, states)


class _States:
    """States after the loops of a prefix, made when a test asks for them."""

    def __init__(self, prefixes: Prefixes, n: int) -> None:
        self._prefixes, self.n = prefixes, n
        self.loops: list[Loop] = []
        self._after: list[State] = []

    def before(self, number: int) -> State:
        """The state before a loop."""
        state = self[number - 1] if number else {}
        loop = self.loops[number]
        if not loop.before:
            return state
        of = self._prefixes
        return {**state, **of.paths.state_before(loop, of.messages, self.n, state, of.tools, self)}

    def __getitem__(self, number: int) -> State:
        while len(self._after) <= number:
            at = len(self._after)
            state = self._prefixes.before(self.loops[at], self.n, self.before(at), self) if at < len(self.loops) else {}
            self._after.append(state)
        return self._after[number]


class _Before:
    """The state that a loop writes, such as the place of the last question. `writes`: whether it writes text too."""

    def __init__(self, prefixes: Prefixes, loop: Loop) -> None:
        self._of, self._loop = prefixes, loop
        self.writes = False
        self._quiet: dict[Any, int] = {}
        self._forward: tuple[State, int, State] | None = None

    def state(self, n: int, before: State, states: _States) -> State:
        self._states = states
        if self._loop.step == 1 and self._loop.less == 0:
            return self._ahead(n, before)
        return self._back(n, before)

    def _round(self, i: int, n: int, state: State) -> tuple[Leaf, State, bool]:
        """A round: its leaf, the state behind it, whether it looked at the end or at more of the state than types."""
        of = self._of
        values = (of.messages, of.messages[i], i, n, state, of.tools, self._states)
        leaf = of.paths.leaf(self._loop.body, *values)
        way = leaf.way or _way(of.paths, self._loop.body, leaf, values)
        self.writes |= bool(leaf.out)
        if leaf.sets:
            state = {**state, **of.paths.state_of(leaf)(*values)}
        return leaf, state, way.early

    def _ahead(self, n: int, before: State) -> State:
        """Goes on where the shorter prefix ended, if no round looked at the end."""
        begin, state, known = self._loop.first, before, self._forward
        if known is not None and known[0] == before and known[1] <= n:
            _, begin, state = known
        ended_alike = True
        for i in range(begin, n):
            leaf, state, near = self._round(i, n, state)
            ended_alike &= not near and not leaf.breaks
            if leaf.breaks:
                break
        if ended_alike:
            self._forward = (before, max(n, self._loop.first), state)
        return state

    def _back(self, n: int, state: State) -> State:
        """Ends early where no earlier message writes anything, as an earlier pass has found."""
        since: int | None = None
        key: Any = None
        frozen = _frozen(state)
        for i in self._loop.places(n):
            if self._loop.step == -1 and i < self._quiet.get(frozen, -1):
                break
            leaf, after, near = self._round(i, n, state)
            if leaf.sets or near:
                since = None
            elif since is None:
                since, key = i, frozen
            if after is not state:
                state, frozen = after, _frozen(after)
            if leaf.breaks:
                since = None
                break
        if self._loop.step == -1 and since is not None and key is not None:
            self._quiet[key] = max(self._quiet.get(key, -1), since + 1)
        return state


@dataclass(frozen=True, slots=True)
class _Way:
    """The tests before a leaf, which are the same whatever values lead to it, and what it sets. `start`: the first that
    looks at the end or the state; `looked`: how far all look; `early`: whether one looks at the end, or at more of the
    state than types."""

    start: Node | None
    looked: Reach
    early: bool


def _way(paths: Paths, node: Node, leaf: Leaf, values: tuple[Any, ...]) -> _Way:
    """The way of a leaf, which it keeps. `node`: its root; `values`: lead to it. Raises UnknownPath."""
    start, looked, early = None, Reach(), False
    while node.leaf is None:
        looks = reach(node)
        if looks.near or looks.far or looks.slots:
            start = start or node
            looked = looked.with_(looks)
            early |= looks.near or looks.far or (node.test is not None and node.test[0] != "code")
        node = paths.next(node, *values)
    for _, each in leaf.sets:
        looked = looked.with_(reach_of(each))
        early |= _depends(each)
    way = leaf.way = _Way(start, looked, early)
    return way


def _depends(expression: Any) -> bool:
    looks = reach_of(expression)
    return looks.near or looks.far or looks.later


def _frozen(state: State) -> Any:
    """The types of a state as a key, of booleans and null the values: what `code` tests."""
    return tuple((slot, code(value)) for slot, value in state.items())


class _Written:
    """The loop that writes the messages."""

    def __init__(self, prefixes: Prefixes, loop: Loop) -> None:
        self._of, self._loop = prefixes, loop
        self._linear = True
        self._walked: list[Leaf] = []
        self._from: list[Node | None] = []  # where the walk of a message begins to look at the end or the state
        self._far: list[int] = []  # places whose leaves depend on state before the loop
        self._running: list[State] = []
        self._current: list[Leaf] = []
        self._initial: State = {}
        self._entered = 0
        self._state: State | None = None
        self._due: list[tuple[float, int]] = []
        self._last: tuple[int, State, Sequence[Leaf]] | None = None

    def leaves(self, n: int, state: State, states: _States) -> Sequence[Leaf]:
        first = self._loop.first
        self._states = states
        if n < first + NEAREST + 1 or not self._linear:
            return self._all(n, state)
        if not self._walked:
            self._walk(states)
        if not self._linear or any(state.get(slot) != value for slot, value in self._initial.items()):
            return self._all(n, state)
        if not any(self._from):  # no message looks at the end or at the state
            return self._walked[: n - first]
        if self._last is not None and self._last[:2] == (n, state):  # of the other value of `prompt`
            return self._last[2]
        self._follow(n - NEAREST, state)
        out = self._current[: n - NEAREST - first]
        out += [self._leaf(i, n, state) for i in range(n - NEAREST, n)]
        if self._linear:
            self._last = n, state, out
        return out if self._linear else self._all(n, state)

    def _all(self, n: int, state: State) -> list[Leaf]:
        of = self._of
        out = []
        for i in range(self._loop.first, n):
            values = (of.messages, of.messages[i], i, n, state, of.tools, self._states)
            leaf = of.paths.leaf(self._loop.body, *values)
            out.append(leaf)
            if leaf.sets:
                state = {**state, **of.paths.state_of(leaf)(*values)}
            if leaf.breaks:
                raise NotLinear("a loop over messages that breaks")
        return out

    def _walk(self, shorter: _States) -> None:
        """The leaves of the whole conversation, where they look at its end, and where at the state before the loop."""
        of, n = self._of, len(self._of.messages)
        states = _States(of, n)
        states.loops = shorter.loops
        state = states.before(len(states.loops) - 1)
        leaves: list[Leaf] = []
        ways: list[_Way] = []
        before: list[State] = []
        running: State = {}
        for i in range(self._loop.first, n):
            held = {**state, **running} if running else state
            values = (of.messages, of.messages[i], i, n, held, of.tools, states)
            leaf = of.paths.leaf(self._loop.body, *values)
            way = leaf.way or _way(of.paths, self._loop.body, leaf, values)
            before.append(running)
            if leaf.sets:
                running = {**running, **of.paths.state_of(leaf)(*values)}
            leaves.append(leaf)
            ways.append(way)
            self._linear &= not (leaf.breaks or way.looked.far)
        depends = running.keys()
        # What the loop writes to its own state must not depend on the end of the conversation.
        self._linear &= not any(
            leaf.sets and (way.looked.near or way.looked.slots - depends)
            for leaf, way in zip(leaves, ways, strict=True)
        )
        self._walked, self._from, self._running = leaves, [way.start for way in ways], before
        self._initial = {slot: state.get(slot) for slot in depends}
        self._far = [self._loop.first + at for at, way in enumerate(ways) if way.looked.slots - depends]

    def _leaf(self, i: int, n: int, state: State) -> Leaf:
        """The leaf of a message near the end of a prefix."""
        at = i - self._loop.first
        start = self._from[at]
        if start is None:
            return self._walked[at]
        of = self._of
        values = (of.messages, of.messages[i], i, n, {**state, **self._running[at]}, of.tools, self._states)
        leaf = of.paths.leaf(start, *values)
        if leaf.sets and leaf is not self._walked[at]:
            self._linear = False
        return leaf

    def _follow(self, end: int, state: State) -> None:
        """Brings the leaves of the messages before `end` up to date with a state."""
        first = self._loop.first
        if end - first < len(self._current):  # a shorter prefix than before
            self._current, self._entered, self._state, self._due = [], 0, None, []
        if self._state is not None and state != self._state:
            for i in self._outdated(state):
                self._update(i, end, state)
        self._state = state
        far = self._far
        while len(self._current) < end - first:
            self._current.append(self._walked[len(self._current)])
        while self._entered < len(far) and far[self._entered] < end:
            self._update(far[self._entered], end, state)
            self._entered += 1

    def _outdated(self, state: State) -> list[int]:
        """Places whose leaves may be others under a new state."""
        entered = self._far[: self._entered]
        old = self._state or {}
        moved = [slot for slot in state if state[slot] != old.get(slot)]
        grows = (
            len(moved) == 1
            and state.keys() == old.keys()
            and all(type(state[slot]) is int and type(old[slot]) is int and state[slot] > old[slot] for slot in moved)
        )
        if not grows:
            self._due = []
            return entered
        places = []
        while self._due and self._due[0][0] < state[moved[0]]:
            places.append(heappop(self._due)[1])
        return places

    def _update(self, i: int, end: int, state: State) -> None:
        of, at = self._of, i - self._loop.first
        node = self._from[at]
        assert node is not None
        values = (of.messages, of.messages[i], i, end + NEAREST, {**state, **self._running[at]}, of.tools, self._states)
        most = inf
        while node.leaf is None:
            if reach(node).slots:
                most = min(most, _holds_until(node.test, i, values[4]))
            node = of.paths.next(node, *values)
        if node.leaf.sets and node.leaf is not self._walked[at]:
            self._linear = False
        self._current[at] = node.leaf
        heappush(self._due, (most, i))


def _holds_until(test: Any, i: int, state: State) -> float:
    """The largest value of the one attribute in a test, while it grows, for which its outcome stays."""
    if test[0] == "code":
        return inf if type(state.get(test[1][-1])) is int else -inf
    if test[0] != "form":
        return -inf
    constant, factors = test[2]
    rest, slot, factor = constant, None, 0
    for atom, each in factors:
        if atom == "i":
            rest += each * i
        elif isinstance(atom, tuple) and atom[0] == "ns" and slot is None:
            slot, factor = atom[1], each
        else:
            return -inf
    value = state.get(slot)
    if type(value) is not int or abs(factor) != 1:
        return -inf
    total = rest + factor * value
    if total == 0:
        return value
    # The sign changes where the total is 0. While the value grows, it goes there or away from it.
    towards = (total > 0) == (factor < 0)
    return value + abs(total) - 1 if towards else inf
