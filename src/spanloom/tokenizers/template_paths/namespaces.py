"""Namespaces of a template: attributes that loops write are state, read and written as expressions.

In: `namespace(…)` of a template. Out: `SymbolicNamespace`. One that is made within a round of a loop belongs to it. One
that is made outside is read in a loop as state: its value may come from any message before.
"""

from typing import Any

from jinja2.utils import Namespace

from spanloom.tokenizers.template_paths.expressions import Expression, Undefined, Unloggable, code
from spanloom.tokenizers.template_paths.recorder import Frame, Recorder, Slot, UnrollError, recorder
from spanloom.tokenizers.template_paths.records import symbol
from spanloom.tokenizers.template_paths.symbols import expression_of, plain


class SymbolicNamespace(Namespace):
    """A namespace. `_round`: the round of a loop that made it, or None."""

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__()
        log = recorder()
        own = dict(*args, **values)
        for name, value in (("_own", own), ("_round", None if log.frame is log.top else log.frame), ("_number", -1)):
            object.__setattr__(self, name, value)
        if log.frame is log.top:
            object.__setattr__(self, "_number", log.namespaces)
            log.namespaces += 1
            for name, value in own.items():
                log.assigned[self._slot(name)] = value

    _own: dict[str, Any]
    _round: Frame | None
    _number: int

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        raise AttributeError(name)

    def _slot(self, name: str) -> Slot:
        return self._number, name

    def __setitem__(self, name: str, value: Any) -> None:
        log = recorder()
        frame = log.frame
        if self._round is not None:
            if self._round is not frame:
                raise UnrollError(frame.loop) if frame.loop is not None else Unloggable("a namespace of another round")
            self._own[name] = value
        elif frame.loop is not None:
            raise UnrollError(frame.loop)
        elif frame is log.top:
            self._own[name] = value
            log.assigned[self._slot(name)] = value
        else:
            frame.sets[self._slot(name)] = value


def read(space: SymbolicNamespace, name: str, undefined: Any) -> Any:
    """An attribute of a namespace. `undefined`: the function that makes an undefined value."""
    log = recorder()
    frame = log.frame
    own = space._own
    if space._round is not None:
        if space._round is not frame and frame.loop is not None:
            raise UnrollError(frame.loop)
        return own[name] if name in own else undefined(obj=space, name=name)
    slot = space._slot(name)
    if frame.loop is not None:
        raise UnrollError(frame.loop)
    # Whether a loop has written an attribute is no test: behind a loop, all that was written before it is state.
    if frame is log.top and (slot in log.assigned or not log.states):
        return own[name] if name in own else undefined(obj=space, name=name)
    if slot in frame.sets:
        return frame.sets[slot]
    of: Expression = ("nsv", len(log.states) - 1, slot) if frame is log.top else ("ns", slot)
    value = log.state.get(slot, Undefined)
    kind = log.test(("code", of), code(value))
    return undefined(obj=space, name=name) if kind == "U" else symbol(value, of)


def before_loop(log: Recorder) -> tuple[tuple[Slot, Expression], ...]:
    """What was written to namespaces since the loop before, which becomes state."""
    written = tuple((slot, expression_of(value)) for slot, value in log.assigned.items())
    log.state.update({slot: plain(value) for slot, value in log.assigned.items()})
    log.assigned = {}
    return written


def sets_of(frame: Frame) -> tuple[tuple[Slot, Expression], ...]:
    return tuple((slot, expression_of(value)) for slot, value in frame.sets.items())


def end_of_round(log: Recorder, frame: Frame, *, breaks: bool) -> None:
    """Ends a round: its path, and what it writes to namespaces becomes state."""
    if breaks:
        log.end_later(frame)
    else:
        log.end(frame, sets_of(frame))
    if frame.loop is None:
        log.state.update({slot: plain(value) for slot, value in frame.sets.items()})
