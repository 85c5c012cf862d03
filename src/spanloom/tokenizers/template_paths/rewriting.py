"""A template's syntax tree, changed so that what Python would do with values past the log becomes a call.

In: the tree of a template. Out: the same tree with calls of the environment's methods: `compare` for comparisons and
`in`, `join_texts` for `~`, `slice_of` for slices, `loop_over` for what a loop iterates over.
"""

from typing import Any

from jinja2 import nodes

from spanloom.tokenizers.template_paths.expressions import Unloggable

_HOLDS_MESSAGE_LOOPS = (nodes.Template, nodes.If, nodes.For, nodes.Scope, nodes.With)
"""Where a loop over messages may be, so that it is recorded round by round: what writes to the text of the template
itself, not to that of a macro or a block."""


def rewrite(template: nodes.Template) -> None:
    """Changes the tree. Raises Unloggable for what no call can replace."""
    rounds = _loops_in_text(template)
    for parent in [template, *template.find_all(nodes.Node)]:
        for name, value in list(parent.iter_fields()):
            if isinstance(value, nodes.Node):
                setattr(parent, name, _replaced(value))
            elif isinstance(value, list):
                value[:] = [_replaced(item) for item in value]
    macros = {
        name.name
        for macro in template.find_all(nodes.Macro)
        for name in macro.find_all(nodes.Name)
        if name.ctx == "load"
    }
    for number, loop in enumerate(template.find_all(nodes.For)):
        if any(loop is each for each in rounds):
            outer: list[nodes.Expr] = [nodes.Name(name, "load") for name in sorted((macros | _read(loop)) - _own(loop))]
            loop.iter = _call("loop_over", [_iterated(loop), nodes.Const(number), nodes.List(outer)], loop)
    if template.environment is not None:
        template.set_environment(template.environment)


def _iterated(loop: nodes.For) -> nodes.Expr:
    assert isinstance(loop.iter, nodes.Expr)  # Jinja declares it as a node of any kind
    return loop.iter


def _loops_in_text(template: nodes.Template) -> list[nodes.For]:
    found: list[nodes.For] = []

    def visit(node: nodes.Node, in_text: bool) -> None:
        within = in_text and isinstance(node, _HOLDS_MESSAGE_LOOPS)
        for child in node.iter_child_nodes():
            if within and isinstance(child, nodes.For) and child.test is None and not child.recursive:
                found.append(child)
            visit(child, within)

    visit(template, True)
    return found


def _read(loop: nodes.For) -> set[str]:
    """Names that the body of a loop reads, namespaces that it writes included."""
    parts = [node for part in loop.body for node in (part, *part.find_all(nodes.Node))]
    return {node.name for node in parts if isinstance(node, nodes.Name) and node.ctx == "load"} | {
        node.name for node in parts if isinstance(node, nodes.NSRef)
    }


def _own(loop: nodes.For) -> set[str]:
    targets = [loop.target, *loop.target.find_all(nodes.Name)]
    return {node.name for node in targets if isinstance(node, nodes.Name)} | {"loop"}


def _replaced(node: Any) -> Any:
    if isinstance(node, nodes.Concat):
        return _call("join_texts", [nodes.List(node.nodes)], node)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        ends = [nodes.Const(None) if end is None else end for end in (node.arg.start, node.arg.stop, node.arg.step)]
        return _call("slice_of", [_replaced(part) for part in (node.node, *ends)], node)
    if isinstance(node, nodes.Compare):
        if len(node.ops) > 1:
            raise Unloggable("a chain of comparisons")
        right = node.ops[0]
        return _call("compare", [nodes.Const(right.op), _replaced(node.expr), _replaced(right.expr)], node)
    return node


def _call(name: str, arguments: list[nodes.Expr], place: nodes.Node) -> nodes.Call:
    call = nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None)
    call.set_lineno(place.lineno)
    return call
