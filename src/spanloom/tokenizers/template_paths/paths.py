"""The paths of a template: learned by rendering, walked without it.

In: a template, its variables. Out: `Paths`. `learn` renders a conversation with Jinja and records its path; `text` is
the text of a conversation whose path is known.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spanloom.tokenizers.template_paths.environment import Environment, loop_context
from spanloom.tokenizers.template_paths.expressions import TOOLS, Compiler, Evaluate, UnknownPath, Unloggable
from spanloom.tokenizers.template_paths.messages import Messages
from spanloom.tokenizers.template_paths.namespaces import sets_of
from spanloom.tokenizers.template_paths.recorder import Leaf, Node, Recorder, Tries, UnrollError, record
from spanloom.tokenizers.template_paths.records import Values
from spanloom.tokenizers.template_paths.symbols import expression_of, plain

Message = dict[str, Any]


class Paths:
    """The known paths of a template under one set of variables.

    `text`: of the template; `constants`: special tokens and variables; `strftime_now`: today's date, or a function that
    raises Unloggable. Raises Unloggable for a template that has what no rule covers.
    """

    def __init__(
        self, text: str, constants: Mapping[str, Any], strftime_now: Callable[[str], str] | None = None
    ) -> None:
        environment = Environment(strftime_now)
        self._template = environment.from_string(text)
        self._template.root_render_func.__globals__["LoopContext"] = loop_context
        self._constants = dict(constants)
        self.tries = Tries()
        self.compiler = Compiler(self._nested)
        self.renderings = 0
        self._numbers: dict[Any, int] = {}

    def learn(self, messages: Sequence[Message], tools: Sequence[Any] | None, *, prompt: bool) -> str:
        """The text of a conversation by Jinja; its path is known from then on.

        Raises Unloggable, Diverged, or whatever the template raises.
        """
        while True:
            try:
                return self._render(list(messages), tools, prompt)
            except UnrollError as fault:
                if fault.args[0] in self.tries.unrolled:
                    raise Unloggable("a nested loop") from None
                self.tries.unrolled.add(fault.args[0])
                self.tries.forget()

    def _render(self, messages: list[Message], tools: Sequence[Any] | None, prompt: bool) -> str:
        self.renderings += 1
        log = Recorder(self.tries, self.tries.roots[prompt], messages)
        record(log)
        try:
            log.test(("bool", TOOLS), bool(tools))
            given = {
                **self._constants,
                "messages": Messages(messages),
                "tools": Values(list(tools), TOOLS) if tools else None,
                "documents": None,
                "add_generation_prompt": prompt,
            }
            pieces = []
            for piece in self._template.root_render_func(self._template.new_context(given)):
                log.write(expression_of(piece))
                pieces.append(plain(piece))
            log.finish(sets_of)
            return "".join(pieces)
        finally:
            record(None)

    def text(self, messages: Sequence[Message], tools: Sequence[Any] | None, *, prompt: bool) -> str:
        """The text of a conversation by its path. Raises UnknownPath."""
        M, t, n = list(messages), tools, len(messages)
        s: dict[Any, Any] = {}
        V: list[dict[Any, Any]] = []
        loops: list[str] = []
        node = self.tries.roots[prompt]
        try:
            while node.leaf is None:
                if node.loop is None:
                    node = self.next(node, M, None, None, n, s, t, V)
                    continue
                loop = node.loop
                s |= self.state_before(loop, M, n, s, t, V)
                pieces = []
                for i in loop.places(n):
                    leaf = self.leaf(loop.body, M, M[i], i, n, s, t, V)
                    pieces.append(self.text_of(leaf)(M, M[i], i, n, s, t, V))
                    if leaf.sets:
                        s |= self.state_of(leaf)(M, M[i], i, n, s, t, V)
                    if leaf.breaks:
                        break
                loops.append("".join(pieces))
                V.append(dict(s))
                node = loop.after
            return "".join(
                loops[part[1]] if part[0] == "loop" else self.compiler.of(part)(M, None, None, n, s, t, V)
                for part in node.leaf.out
            )
        except UnknownPath:
            raise
        except Exception as fault:  # an item that is not there, say: the path is of other conversations
            raise UnknownPath(str(fault)) from None

    def next(self, node: Node, *values: Any) -> Node:
        """The node behind the outcome of a node's test. Raises UnknownPath."""
        following = node.outcomes.get((node.evaluate or self._compiled(node))(*values))
        if following is None:
            raise UnknownPath
        return following

    def _compiled(self, node: Node) -> Evaluate:
        if node.test is None:
            raise UnknownPath
        node.evaluate = self.compiler.of(node.test)
        return node.evaluate

    def leaf(self, node: Node, *values: Any) -> Leaf:
        """The leaf behind a node. Raises UnknownPath."""
        while (leaf := node.leaf) is None:  # `next`, without a call for each test
            following = node.outcomes.get((node.evaluate or self._compiled(node))(*values))
            if following is None:
                raise UnknownPath
            node = following
        return leaf

    def number(self, leaf: Leaf) -> int:
        """A number of what a leaf writes, equal for leaves that write the same: `out` takes long to hash."""
        if leaf.number is None:
            leaf.number = self._numbers.setdefault(leaf.out, len(self._numbers))
        return leaf.number

    def text_of(self, leaf: Leaf) -> Evaluate:
        if leaf.text is None:
            leaf.text = self.compiler.text(leaf.out)
        return leaf.text

    def state_of(self, leaf: Leaf) -> Evaluate:
        if leaf.state is None:
            leaf.state = self.compiler.state(leaf.sets)
        return leaf.state

    def state_before(self, loop: Any, M: Any, n: int, s: Any, t: Any, V: Any) -> dict[Any, Any]:
        if not loop.before:
            return {}
        if loop.state is None:
            loop.state = self.compiler.state(loop.before)
        values: dict[Any, Any] = loop.state(M, None, None, n, s, t, V)
        return values

    def _nested(
        self, number: int, items: Sequence[Any], M: Any, c: Any, i: Any, n: Any, s: Any, t: Any, V: Any, x: Any
    ) -> str:
        """The text of a nested loop. Raises UnknownPath."""
        root, size = self.tries.nested[number], len(items)
        pieces = []
        for place, item in enumerate(items):
            values = (M, c, i, n, s, t, V, (*x, item, place, size))
            leaf = self.leaf(root, *values)
            pieces.append(self.text_of(leaf)(*values))
            if leaf.breaks:
                break
        return "".join(pieces)
