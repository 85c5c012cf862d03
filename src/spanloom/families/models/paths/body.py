"""What the messages of a prefix write, in time of what is new since the prefix before.

In: the leaves of the messages of one prefix after another. Out: the end of their text, or all of it, where each message
ends, which texts of earlier messages are left out. An append-only template writes the messages of the prefix before
again: their text is not copied for each prefix.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from spanloom.families.models.conversation import Conversation
from spanloom.families.models.paths.leaves import CALLS, CONTENT, REASONING, NoRule, Written
from spanloom.tokenizers.template_paths.recorder import Leaf

LOOK_BEHIND = 256
"""Characters that the end of a text has before what is new in it. No token where a text may be cut is longer."""


class Body:
    """The messages of a conversation as the last prefix writes them.

    `written`: a leaf → what it writes; `text`: a leaf and the place of its message → its text. Both raise NoRule.
    `inline`: reasoning is in the content.
    """

    def __init__(
        self,
        conversation: Conversation,
        written: Callable[[Leaf], Written],
        text: Callable[[Leaf, int], str],
        *,
        inline: bool,
    ) -> None:
        self._messages, self._runs = conversation.messages, set(conversation.runs())
        self._written, self._text, self._inline = written, text, inline
        self._first = 0
        self._leaves: Sequence[Leaf] = []
        self._texts = [""]  # of the head and of the messages
        self._ends = [0]  # of these texts, in characters of the whole
        self._kept = 0  # how many messages are those of the prefix before
        self._unthought = [0]  # of the first messages: how many have reasoning that is left out
        self._unwritten: list[int] = []  # places of messages whose content is left out
        self._uncalled: list[int] = []  # places of messages whose calls are left out
        self._elsewhere: list[tuple[int, int]] = []  # the place of a message, and of the other one whose text it writes

    def follow(self, leaves: Sequence[Leaf], first: int, head: str) -> int:
        """Goes on to a head and the messages from place `first` on. Returns how many characters are those of the text
        before. Raises NoRule."""
        same = _same(self._leaves, leaves) if first == self._first and head == self._texts[0] else 0
        if not same:
            self._texts, self._ends = [head], [len(head)]
        self._first, self._kept = first, same
        for kept in (self._texts, self._ends, self._unthought):
            del kept[same + 1 :]
        self._texts += [self._text(leaf, place) for place, leaf in enumerate(leaves[same:], first + same)]
        for text in self._texts[same + 1 :]:
            self._ends.append(self._ends[-1] + len(text))
        for places in (self._unwritten, self._uncalled):
            while places and places[-1] >= first + same:
                places.pop()
        while self._elsewhere and self._elsewhere[-1][0] >= first + same:
            self._elsewhere.pop()
        for place, leaf in enumerate(leaves[same:], first + same):
            own = self._written(leaf)
            self._unthought.append(self._unthought[-1] + self._leaves_out(place, own.kinds))
            if own.foreign:
                self._elsewhere += [(place, part.message) for part in own.parts if part.message is not None]
        self._leaves = leaves
        return self._ends[same] if same else 0

    def whole(self) -> str:
        """The text of the head and of the messages."""
        return "".join(self._texts)

    def new(self) -> tuple[int, str]:
        """A place in the text and what is behind it: what is new since the text before, and at least LOOK_BEHIND
        characters before that, if the text has them."""
        at = self._kept
        while at and self._ends[self._kept] - self._ends[at - 1] < LOOK_BEHIND:
            at -= 1
        return self._ends[at - 1] if at else 0, "".join(self._texts[at:])

    def last(self) -> int:
        """Where the last message begins."""
        return self._ends[max(len(self._ends) - 2, 0)]

    def end(self, count: int) -> int:
        """Where the first messages end in the text."""
        return self._ends[count]

    def _leaves_out(self, place: int, kinds: frozenset[str]) -> bool:
        """Notes what a leaf leaves out of its message. Returns whether that is reasoning."""
        message = self._messages[place] if place < len(self._messages) else {}
        if CONTENT not in kinds and _has(message, CONTENT):
            self._unwritten.append(place)
        if CALLS not in kinds and message.get("tool_calls"):
            self._uncalled.append(place)
        return (CONTENT if self._inline else REASONING) not in kinds and _has(message, REASONING)

    def forgotten(self, run: int, above: set[int]) -> int:
        """How many texts of earlier runs are left out before the message `run`. `above`: messages whose content is
        written before all messages. Raises NoRule for other texts that are left out."""
        forgotten = self._unthought[run - self._first]
        if not (self._first or self._unwritten or self._uncalled):
            return forgotten
        forgotten += sum(map(self._is_thought, range(self._first)))
        elsewhere = above | {message for _, message in self._elsewhere}
        for place in self._left(self._unwritten, CONTENT, run):
            if place not in elsewhere:
                if place not in self._runs:
                    raise NoRule("a text of the context is not written")
                forgotten += 1
        if any(True for _ in self._left(self._uncalled, "tool_calls", run)):
            raise NoRule("calls of the context are not written")
        return forgotten

    def _left(self, places: Sequence[int], key: str, run: int) -> Iterator[int]:
        """The places before `run` that a list holds, and those before the first leaf that have a text."""
        yield from (place for place in range(self._first) if _has(self._messages[place], key))
        yield from (place for place in places if place < run)

    def _is_thought(self, place: int) -> bool:
        return _has(self._messages[place], REASONING)


def _has(message: Any, key: str) -> bool:
    value = message.get(key)
    return bool(value.strip() if isinstance(value, str) else value)


def _same(left: Sequence[Leaf], right: Sequence[Leaf]) -> int:
    """How many leaves two lists have in common at their begin."""
    most = min(len(left), len(right))
    if left[:most] == right[:most]:  # compared by identity, without a loop in Python
        return most
    return next(at for at in range(most) if left[at] is not right[at])
