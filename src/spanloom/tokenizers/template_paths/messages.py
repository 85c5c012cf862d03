"""The messages of a conversation, and the loops over them and over what they hold.

In: the list of messages; a list of calls, arguments or tools. Out: `Messages`, whose places are linear forms; `loop`
variables; iterators that record each round in a trie. A round of a loop over messages is a path of its own. So is a
round of a nested loop, if it reads nothing of the state or of the messages' number.
"""

from collections.abc import Iterator
from typing import Any

from spanloom.tokenizers.template_paths.expressions import (
    AT,
    COUNT,
    ITEM,
    PLACE,
    SIZE,
    Expression,
    Form,
    Unloggable,
    added,
    code,
)
from spanloom.tokenizers.template_paths.namespaces import before_loop, end_of_round
from spanloom.tokenizers.template_paths.recorder import Frame, UnrollError, recorder
from spanloom.tokenizers.template_paths.records import Items, Listed, Record, Values, symbol
from spanloom.tokenizers.template_paths.scalars import Text, Whole, form_of_number
from spanloom.tokenizers.template_paths.symbols import expression_of, fixed, forbid_the_rest


class Messages(Listed):
    """messages[first : n - less], backwards if `step` is -1."""

    def __init__(self, messages: list[dict[str, Any]], first: int = 0, less: int = 0, step: int = 1) -> None:
        super().__init__()
        self._messages, self._first, self._less, self._step = messages, first, less, step

    @property
    def _expression(self) -> Expression:
        return "messages", self._first, self._less, self._step

    @property
    def _plain(self) -> list[dict[str, Any]]:
        return self._messages[self._first : len(self._messages) - self._less][:: self._step]

    @property
    def _view(self) -> tuple[int, int, int]:
        return self._first, self._less, self._step

    def _length(self) -> Whole:
        less = self._first + self._less
        return Whole(len(self._messages) - less, added(COUNT, (-less, ())))

    def _at(self, index: Form) -> Record:
        """The message at a place of this view, from 0."""
        if self._step == 1:
            place = added((self._first, ()), index)
        else:
            place = added(added(COUNT, (-self._less - 1, ())), index, -1)
        return self._message(place)

    def _message(self, place: Form) -> Record:
        return Record(self._messages[recorder().value_of(place)], ("M", place))

    def __len__(self) -> int:
        return int(fixed(self._length()))

    def __bool__(self) -> bool:
        return bool(self._length())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._slice(*(fixed(end) for end in (key.start, key.stop, key.step)))
        length: Any = self._length()
        if key < 0:
            key = length + key
        if key < 0 or key >= length:
            raise IndexError("list index out of range")
        return self._at(form_of_number(key))

    def _slice(self, start: int | None, stop: int | None, step: int | None) -> Any:
        if (start, stop, step) == (None, None, -1):
            return Messages(self._messages, self._first, self._less, -self._step)
        first, less = start or 0, 0 if stop is None else -stop
        ahead = first >= 0 and (stop is None or stop < 0)
        if self._step == 1 and step in (None, 1) and ahead:
            if self._length() >= first + less:
                return Messages(self._messages, self._first + first, self._less + less)
            return []
        return list(self)[slice(start, stop, step)]

    def __iter__(self) -> Iterator[Any]:
        for place in range(len(self)):
            yield self._at((place, ()))


class MessageLoop(list[Any]):
    """What the template loops over, if its rounds have a trie of their own. `key`: what they read from outside."""

    def __init__(self, view: Messages, key: Any) -> None:
        super().__init__()
        self.view, self.key = view, key

    def __iter__(self) -> Iterator[Any]:
        return self.rounds()

    def rounds(self) -> Iterator[Record]:
        log = recorder()
        if log.frame is not log.top:
            raise Unloggable("a loop over messages within another one")
        loop = log.begin_loop(self.view._view, before_loop(log), self.key)
        frame: Frame | None = None
        whole = False
        try:
            for place in loop.places(len(log.messages)):
                log.place = place
                log.frame = frame = Frame(loop.body)
                yield Record(log.messages[place], ("M", PLACE))
                end_of_round(log, frame, breaks=False)
                frame = None
            whole = True
        finally:
            if not whole and frame is not None:
                end_of_round(log, frame, breaks=True)
            log.end_loop(loop)


class _Loop:
    """What both kinds of `loop` read off the place and the length."""

    index0: Any
    length: Any

    @property
    def index(self) -> Any:
        return self.index0 + 1

    @property
    def first(self) -> bool:
        return bool(self.index0 == 0)

    @property
    def last(self) -> bool:
        return bool(self.index == self.length)


class LoopOverMessages(_Loop):
    """`loop` of such a loop."""

    def __init__(self, over: MessageLoop) -> None:
        self._over = over

    def __iter__(self) -> Iterator[Any]:
        for message in self._over.rounds():
            yield message, self

    @property
    def index0(self) -> Any:
        view, place = self._over.view, Whole(recorder().place, PLACE)
        if view._step == 1:
            return place - view._first
        return Whole(len(view._messages), COUNT) - view._less - 1 - place

    @property
    def length(self) -> Any:
        return self._over.view._length()

    @property
    def revindex(self) -> Any:
        return self.length - self.index0

    @property
    def revindex0(self) -> Any:
        return self.length - self.index

    depth, depth0 = 1, 0

    def _beside(self, step: int) -> Any:
        return self._over.view._at(form_of_number(self.index0 + step))

    @property
    def previtem(self) -> Any:
        return UNDEFINED_ITEM if self.first else self._beside(-1)

    @property
    def nextitem(self) -> Any:
        return UNDEFINED_ITEM if self.last else self._beside(1)

    def cycle(self, *values: Any) -> Any:
        return values[fixed(self.index0) % len(values)]

    def changed(self, *_: Any) -> Any:
        raise Unloggable("loop.changed keeps a value between rounds")

    def __call__(self, *_: Any) -> Any:
        raise Unloggable("a recursive loop")


UNDEFINED_ITEM: Any = object()
"""What `loop.nextitem` is at the end; the environment makes it an undefined value."""


class NestedLoop(list[Any]):
    """What a template loops over within a message or over tools. `number`: of the loop in the template; `key`: of its
    trie."""

    def __init__(self, values: Values | Items, number: int, key: Any) -> None:
        super().__init__()
        self.values, self.number, self.key = values, number, key

    def __iter__(self) -> Iterator[Any]:
        return self.rounds()

    def rounds(self) -> Iterator[Any]:
        log = recorder()
        parent, depth = log.frame, log.frame.depth + 1
        of = expression_of(self.values)
        trie = log.tries.nested_loop(self.key)
        items = list(self.values._plain)
        frame: Frame | None = None
        whole = False
        try:
            for place, item in enumerate(items):
                log.frame = frame = Frame(log.tries.nested[trie])
                frame.depth, frame.loop, frame.item = depth, self.number, (place, len(items))
                yield self._item(item, ("x", depth, ITEM))
                end_of_round(log, frame, breaks=False)
                frame = None
            whole = True
        finally:
            if not whole and frame is not None:
                log.end_later(frame)
            log.frame = parent
            parent.out.append(("sub", trie, of))

    def _item(self, item: Any, of: Expression) -> Any:
        log = recorder()
        if isinstance(self.values, Items):
            log.test(("code", ("get", of, 1)), code(item[1]))
            return Text(item[0], ("get", of, 0)), symbol(item[1], ("get", of, 1))
        log.test(("code", of), code(item))
        return symbol(item, of)


class LoopOverItems(_Loop):
    """`loop` of a nested loop. Outside of its own rounds it can't be read."""

    def __init__(self, over: NestedLoop) -> None:
        self._over = over

    def __iter__(self) -> Iterator[Any]:
        for item in self._over.rounds():
            yield item, self

    def _read(self, part: int) -> Any:
        frame = recorder().frame
        if frame.loop != self._over.number:
            raise UnrollError(self._over.number if frame.loop is None else frame.loop)
        return Whole(frame.item[part - AT], (0, ((("x", frame.depth, part), 1),)))

    @property
    def index0(self) -> Any:
        return self._read(AT)

    @property
    def length(self) -> Any:
        return self._read(SIZE)

    def __getattr__(self, name: str) -> Any:
        raise UnrollError(self._over.number)


forbid_the_rest(Messages)
