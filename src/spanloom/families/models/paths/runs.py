"""A run by its path: its text, where its texts are, where its turn ends.

In: the paths of a template under one set of variables, a conversation as the template takes it. Out: `PathRun`, in
characters of F. Raises NoRule; returns None where F does not begin with P, which the full proof refuses.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from spanloom.families.models.conversation import Conversation
from spanloom.families.models.defaults import SPAN_ANALYSIS, SPAN_COMMENTARY, SPAN_FINAL
from spanloom.families.models.errors import RefusedError
from spanloom.families.models.form import CLOSING, OPENING
from spanloom.families.models.model import Model
from spanloom.families.models.paths.body import Body
from spanloom.families.models.paths.independent import Independent
from spanloom.families.models.paths.leaves import CALLS, CONTENT, LITERAL, REASONING, NoRule, Part, Written, written
from spanloom.families.models.prove.context import check_tools, tool_texts
from spanloom.tokenizers.chat_template import ChatTemplateError
from spanloom.tokenizers.template_paths.expressions import Diverged, UnknownPath, Unloggable, types_of
from spanloom.tokenizers.template_paths.paths import Paths
from spanloom.tokenizers.template_paths.prefixes import NotLinear, Prefix, Prefixes
from spanloom.tokenizers.template_paths.recorder import Leaf


@cache
def _any_of(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))


SLOW_SECONDS = 2
"""Of a plain rendering. A slower template is not rendered with values that log, which takes several times as long."""


@dataclass(kw_only=True, slots=True)
class PathRun:
    """A run on its path, with places in characters of F.

    `prompt`: the characters of P; `begin`: where its message begins, `closings`: where the spans of its later texts
    begin, with `numbers`, the spans; `stop`: the end of the token that ends the turn, `tail`: what follows it;
    `marker`: of the next message, if it ends the turn: F ends with it; `key`: its layout. `text`: F from `base` on;
    `shared`: how many characters are those of the run `previous` under the same variables; `body`: the messages, until
    the next run is walked. `body` and `text` are emptied once the run is in a document, which has its text.
    """

    run: int
    base: int
    text: str
    shared: int
    previous: int | None
    body: Body | None
    prompt: int
    begin: int
    closings: tuple[int, ...]
    numbers: tuple[int, ...]
    stop: int
    tail: str
    turn_end: str
    marker: str
    trimmed: bool
    forgotten: int
    variables: Mapping[str, Any]
    key: Any

    def widen(self) -> str:
        """F. From now on `text` has all of it."""
        if self.base:
            assert self.body is not None, "the next run is not walked yet"
            self.base, self.text = 0, self.body.whole() + self.marker
        return self.text

    def release(self) -> None:
        self.text, self.body = "", None


class NextMessage(NoRule):
    """The template ends a turn with the marker of the next message, which is not known here."""


class UnknownCall(NoRule):
    """A call on a path that no rendering has had."""


class Walked:
    """A conversation under one set of variables. `messages`: as the template takes them, without null values; a message
    behind the last run may end its turn. `inline`: reasoning is in the content."""

    def __init__(
        self,
        model: Model,
        paths: Paths,
        variables: Mapping[str, Any],
        conversation: Conversation,
        messages: Sequence[dict[str, Any]],
        independent: Independent,
        *,
        inline: bool,
    ) -> None:
        self._model, self._paths, self._conversation, self._variables = model, paths, conversation, variables
        self._independent, self._inline = independent, inline
        self._stops = _any_of(tuple(model.stops.values()))
        self._last = conversation.runs()[-1]
        self._known = list(messages)
        self._forget()

    def _forget(self) -> None:
        """Starts over, before the first prefix and when paths were learned."""
        self._prefixes = Prefixes(self._paths, self._known, self._conversation.tools)
        self._texts: dict[tuple[int, int], str] = {}
        self._tops: dict[int, tuple[str, str, list[tuple[Part, str]]]] = {}
        self._checked: set[int] = set()  # leaves of the template that write the tools
        self._body = Body(self._conversation, self._written, self._text, inline=self._inline)
        self._previous: int | None = None  # the run that `_body` has

    def run(self, run: int) -> PathRun | None:
        """The run in place of a message. Raises NoRule. None: F does not begin with P."""
        before, after = self._prefix(run, prompt=True), self._prefix(run + 1, prompt=False)
        head, behind, head_parts = self._around(after)
        head_of_prompt, opening, _ = self._around(before)
        if behind:
            raise NoRule("the template writes behind the messages")
        count, body = len(before.leaves), self._body
        if head == head_of_prompt and before.first == after.first and before.leaves == after.leaves[:count]:
            # Without the text of the prompt, and without what is known of the run before.
            shared, prompt = body.follow(after.leaves, after.first, head), body.end(count)
            base, text = body.new()
            if prompt < base:
                base, text = 0, body.whole()
            if not text.startswith(opening, prompt - base):
                return None
        else:
            body.follow(before.leaves, before.first, head_of_prompt)
            earlier = body.whole()
            body.follow(after.leaves, after.first, head)
            prompt, shared, base, text = len(earlier), 0, 0, body.whole()
            if not text.startswith(earlier + opening):
                return None
        begin, previous, self._previous = body.last(), self._previous, run
        # Before the next message is looked at: learning its path forgets what was followed.
        forgotten = body.forgotten(run, {part.message for part, _ in head_parts if part.message is not None})
        if prompt != begin:
            raise NoRule("the prompt ends within another message")
        prompt += len(opening)
        own = self._written(after.leaves[-1])
        self._independent.check(after.leaves[-1], after.states.loops[:-1], run)
        texts = [(part.kind, text) for part, text in zip(own.parts, self._pieces(own.parts, run), strict=True)]
        if own.foreign:
            raise NoRule("a text of another message in the run")
        if self._inline and (reasoning := self._conversation.messages[run].get("reasoning")):
            texts = [each for kind, text in texts for each in _parted(kind, text, reasoning)]
        placed, closings, numbers, trimmed = self._placed(texts, begin, run)
        last = placed[-1][1] if placed else prompt
        # Calls are placed with the literal before their first text, which the prompt may hold a part of.
        if placed and placed[0][0] < prompt and numbers[0] != SPAN_COMMENTARY:
            raise NoRule("a text within the prompt")
        marker = self._marker(run, text, last - base, after.leaves[-1])
        text += marker
        stop, turn_end = self._turn_end(text, prompt - base, last - base)
        if id(after.top) not in self._checked:
            self._check_tools(head_parts)
            self._checked.add(id(after.top))
        message = self._conversation.messages[run]
        flags = tuple([bool((message.get(key) or "").strip()) for key in ("content", "reasoning")])
        calls = self._calls(message["tool_calls"], own) if message.get("tool_calls") else None
        return PathRun(
            run=run,
            base=base,
            text=text,
            shared=shared,
            previous=previous,
            body=body,
            prompt=prompt,
            begin=begin,
            closings=closings,
            numbers=numbers,
            stop=base + stop,
            tail=text[stop:],
            turn_end=turn_end,
            marker=marker,
            trimmed=trimmed,
            forgotten=forgotten,
            variables=self._variables,
            key=(*map(self._paths.number, (after.leaves[-1], after.top, before.top)), flags, opening, calls),
        )

    def _calls(self, calls: Sequence[Mapping[str, Any]], own: Written) -> Any:
        """The types of the calls of a run, and of arguments that are written one by one, for the key of its layout."""
        arguments = [call["arguments"] for call in calls]
        values = [each.values() for each in arguments if own.by_item and isinstance(each, dict)]
        return frozenset(types_of(chain.from_iterable(values))), tuple(
            (type(each).__name__, bool(each)) for each in arguments
        )[:2]

    def _prefix(self, n: int, *, prompt: bool) -> Prefix:
        try:
            return self._prefixes.prefix(n, prompt=prompt)
        except NotLinear as fault:
            raise NoRule(str(fault)) from None
        except UnknownPath:
            pass
        self._learn((len(self._known), False), (n, prompt))
        try:
            return self._prefixes.prefix(n, prompt=prompt)
        except (UnknownPath, NotLinear) as fault:
            raise NoRule(f"unknown after a rendering: {fault}"[:80]) from None

    def learn_calls(self) -> None:
        """Renders all prefixes that end with calls, so that the paths of their calls are known. Raises NoRule."""
        ends = {place + 1 for place, message in enumerate(self._known) if message.get("tool_calls")}
        self._learn(*((end, False) for end in sorted({*ends, len(self._known)})), (self._last, True))

    def _learn(self, *prefixes: tuple[int, bool]) -> None:
        """Renders prefixes with values that log and plainly. Raises NoRule, also where the texts differ."""
        tools = self._conversation.tools
        for end, asks in dict.fromkeys(prefixes):
            began = time.monotonic()
            try:  # first in the process with limits: a traced rendering has none
                plain = self._model.template.render(
                    self._known[:end], tools=tools, add_generation_prompt=asks, **self._variables
                )
            except ChatTemplateError:
                raise NoRule("the template raises") from None
            if time.monotonic() - began > SLOW_SECONDS:
                raise NoRule("a rendering takes long")
            try:
                text = self._paths.learn(self._known[:end], tools, prompt=asks)
            except (Unloggable, Diverged) as fault:
                raise NoRule(f"{type(fault).__name__}: {fault}"[:80]) from None
            except Exception:  # a value that logs is not taken; the full proof has none
                raise NoRule("a traced rendering raises") from None
            if text != plain:
                raise NoRule("a traced rendering writes another text")
        self._forget()

    def _written(self, leaf: Leaf) -> Written:
        """The parts of a leaf. A rendering may add paths of calls, which are checked then."""
        if leaf.data is None or leaf.data[0] != self._paths.renderings:
            leaf.data = (self._paths.renderings, written(self._paths, leaf.out))
        own: Written = leaf.data[1]
        return own

    def _text(self, leaf: Leaf, place: int) -> str:
        key = (id(leaf), place)
        if key not in self._texts:
            self._written(leaf)  # raises NoRule for a text that depends on state
            values = (self._known, self._known[place], place, None, None, self._conversation.tools, None)
            try:
                self._texts[key] = self._paths.text_of(leaf)(*values)
            except UnknownPath:  # of a call
                raise UnknownCall("the path of a call is not known") from None
        return self._texts[key]

    def _pieces(self, parts: Sequence[Part], place: int) -> list[str]:
        values = (self._known, self._known[place], place, None, None, self._conversation.tools, None)
        return self._evaluated(parts, values)

    def _around(self, prefix: Prefix) -> tuple[str, str, list[tuple[Part, str]]]:
        """The text before the messages and behind them, and the parts of the former."""
        top = prefix.top
        if (known := self._tops.get(id(top))) is not None:
            return known
        if top.data is None or top.data[0] != self._paths.renderings:
            at = top.out.index(("loop", len(prefix.states.loops) - 1))
            parts = [[each for each in out if each[0] != "loop"] for out in (top.out[:at], top.out[at + 1 :])]
            top.data = (self._paths.renderings, *(written(self._paths, tuple(each)).parts for each in parts))
        _, before, behind = top.data
        if any(part.kind != LITERAL for part in behind):
            raise NoRule("the template writes texts behind the messages")
        values = (self._known, None, None, None, None, self._conversation.tools, None)
        head, tail = self._evaluated(before, values), self._evaluated(behind, values)
        around = self._tops[id(top)] = "".join(head), "".join(tail), list(zip(before, head, strict=True))
        return around

    def _evaluated(self, parts: Sequence[Part], values: tuple[Any, ...]) -> list[str]:
        try:
            return [part.text(*values) for part in parts]
        except UnknownPath:  # of a tool or call
            raise UnknownCall("the path of a call or tool is not known") from None

    def _placed(
        self, texts: Sequence[tuple[str, str]], begin: int, run: int
    ) -> tuple[list[tuple[int, int]], tuple[int, ...], tuple[int, ...], bool]:
        """Where the run's texts are in F, where later spans begin, the spans, whether a text is trimmed. `texts`: each
        with its kind, in order."""
        message = self._conversation.messages[run]
        calls = bool(message.get("tool_calls"))
        has = {kind for kind in (CONTENT, REASONING) if (message.get(kind) or "").strip()}
        if calls:
            has.add(CALLS)
        if not has <= {kind for kind, _ in texts}:
            raise NoRule("a text of the run is not written")
        span = {REASONING: SPAN_ANALYSIS, CONTENT: SPAN_COMMENTARY if calls else SPAN_FINAL, CALLS: SPAN_COMMENTARY}
        placed: list[tuple[int, int]] = []
        closings: list[int] = []
        numbers: list[int] = []
        trimmed, at = False, begin
        behind: list[tuple[int, str]] = []
        for kind, text in texts:
            if kind == LITERAL:
                behind.append((at, text))
            elif kind in has:
                if kind == CALLS:
                    behind.append((at, text[: text.index(message["tool_calls"][0]["name"])]))
                if numbers and numbers[-1] != span[kind]:
                    closing = next(
                        (where + found.end() for where, each in behind if (found := self._model.added.search(each))),
                        at if self._inline and kind == CONTENT else None,
                    )
                    if closing is None:
                        raise NoRule("no added token between two spans")
                    closings.append(closing)
                if not numbers or numbers[-1] != span[kind]:
                    numbers.append(span[kind])
                placed.append((at, at + len(text)))
                given = message.get(kind) or "" if kind != CALLS else text
                trimmed |= len(given) != len(text)
                behind = []
            at += len(text)
        return placed, tuple(closings), tuple(numbers) or (SPAN_FINAL,), trimmed

    def _marker(self, run: int, text: str, last: int, leaf: Leaf) -> str:
        """The stop token that the next message begins with, if it ends the turn; else nothing. `leaf`: of the run;
        `last`: where its last text ends. Raises NoRule."""
        if self._stops.search(text, last):
            return ""
        if run + 1 >= len(self._known):
            raise NextMessage("the next message ends the turn")
        if self._known[run + 1]["role"] == "assistant":
            raise NoRule("an assistant's message is behind the run")
        own, following = self._prefix(run + 2, prompt=False).leaves[-2:]
        kind, tail = self._behind_texts(leaf, run)
        kind_before, behind = self._behind_texts(own, run)
        behind += self._text(following, run + 1)
        found = self._stops.match(behind, len(tail)) if kind == kind_before and behind.startswith(tail) else None
        if found is None:
            raise NoRule("the next message does not end the turn")
        return found[0]

    def _behind_texts(self, leaf: Leaf, run: int) -> tuple[str, str]:
        """The kind of the last text that a leaf writes, and what is behind it. Raises NoRule."""
        own = self._written(leaf)
        behind: list[str] = []
        for part, text in zip(reversed(own.parts), reversed(self._pieces(own.parts, run)), strict=True):
            if part.kind != LITERAL and text.strip():
                return part.kind, "".join(reversed(behind))
            behind.append(text)
        raise NoRule("no text of the run is written where a message follows")

    def _turn_end(self, text: str, prompt: int, last: int) -> tuple[int, str]:
        if self._model.ends.within(text, prompt, last):
            raise NoRule("a stop token before the last text")
        found = self._stops.search(text, last)
        assert found is not None, "the turn has an end, or a marker"
        return found.end(), found[0]

    def _check_tools(self, head: Sequence[tuple[Part, str]]) -> None:
        texts = tool_texts(self._conversation.tools)
        held = "\0".join(text for part, text in head if part.message is None)
        try:
            check_tools([], held, len(held), texts)
        except RefusedError:
            raise NoRule("a text of the tools is not written before the messages") from None


def _parted(kind: str, text: str, reasoning: str) -> list[tuple[str, str]]:
    """A part of a content with the reasoning in it as marks, reasoning and content; another part as it is. Raises
    NoRule."""
    if kind != CONTENT:
        return [(kind, text)]
    before = OPENING + reasoning + CLOSING
    if text.startswith(before):
        return [(LITERAL, OPENING), (REASONING, reasoning), (LITERAL, CLOSING), (CONTENT, text[len(before) :])]
    if text == before.rstrip():
        return [(LITERAL, OPENING), (REASONING, reasoning), (LITERAL, CLOSING.rstrip())]
    raise NoRule("the content is not written with its reasoning")
