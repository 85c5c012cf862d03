"""Harmony messages → a conversation that is independent of a model's format.

In: a checked row of `harmony_conversations_v1` or `synth_harmony_v1`. Out: a `Conversation`. Raises
RowRefusedError for what has no counterpart outside Harmony: its built-in tools, content that is not text.

    system            settings; its text, if any, is a system message
    developer         a system message, and the tools
    analysis          reasoning of the assistant's message
    commentary        its text, and calls of `functions.NAME`
    final             its text
    tool              a result; it belongs to the first call that has no result yet
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spanloom.conversations.conversation import SETTINGS, Conversation, Settings
from spanloom.conversations.reading.tools import PREFIX
from spanloom.conversations.source.rejects import Reason, RowRefusedError
from spanloom.conversations.source.structure import LabelledConversation
from spanloom.conversations.turns import Call, Message
from spanloom.supervision import SPAN_CONTEXT


def neutral_conversation(row: LabelledConversation) -> Conversation:
    """The conversation of a row. Raises RowRefusedError (`field_invalid`)."""
    parts = _Parts()
    for place, (message, span) in enumerate(zip(row.messages, row.labels.tolist(), strict=True)):
        # SYNTH has no marks; a message that has one nevertheless is read as it says.
        trained = span != SPAN_CONTEXT and message.get("trained") is not False
        truncated = place in row.truncated or message.get("truncated") is True
        parts.add(message, f"message {place}", trained=trained, truncated=truncated)
    parts.close()
    return Conversation(
        messages=tuple(parts.messages), tools=tuple(parts.tools), settings=parts.settings, weight=row.weight
    )


@dataclass
class _Parts:
    """What was read so far. `reasoning` to `truncated`: parts of the assistant's message that is being read."""

    messages: list[Message] = field(default_factory=list)
    tools: list[Mapping[str, Any]] = field(default_factory=list)
    settings: Settings = field(default_factory=Settings)
    reasoning: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    channel: str | None = None
    trained: set[bool] = field(default_factory=set)
    truncated: bool = False
    open_calls: list[str] = field(default_factory=list)
    calls_made: int = 0

    def add(self, message: Mapping[str, Any], where: str, *, trained: bool, truncated: bool) -> None:
        role = message["role"]
        if role == "assistant":
            self._assistant(message, where)
            self.trained.add(trained)
            self.truncated |= truncated
            if len(self.trained) > 1:
                raise _refused(f"a part of the assistant's message before {where} is trained, and another one is not")
            return
        self.close()
        if role == "system":
            self._system(message, where)
        elif role == "developer":
            self._developer(message, where)
        elif role == "tool":
            name = str(message.get("name") or "").removeprefix(PREFIX)
            call_id = self.open_calls.pop(0) if self.open_calls else None
            self.messages.append(Message(role="tool", texts=_texts(message, where), name=name, call_id=call_id))
        else:
            self.messages.append(Message(role="user", texts=_texts(message, where), name=message.get("name")))

    def _assistant(self, message: Mapping[str, Any], where: str) -> None:
        channel, recipient = message.get("channel"), message.get("recipient")
        texts = _texts(message, where)
        ended = bool(self.calls) or self.channel == "final"
        if ended and not (recipient is not None and self.calls):
            self.close()
        if recipient is not None:
            if not str(recipient).startswith(PREFIX):
                raise _refused(f"{where} calls {recipient!r}, a tool of Harmony's own")
            self.calls_made += 1
            # Nine letters and digits: the format that templates with a check of call ids accept.
            call = Call(
                id=f"call{self.calls_made:05d}",
                name=str(recipient).removeprefix(PREFIX),
                arguments="".join(texts),
            )
            self.calls.append(call)
        elif channel == "analysis":
            self.reasoning += texts
        else:
            self.texts += texts
            self.channel = channel

    def close(self) -> None:
        """Ends the assistant's message that is being read."""
        if not self.trained:
            return
        self.messages.append(
            Message(
                role="assistant",
                texts=tuple(self.texts),
                reasoning=tuple(self.reasoning),
                calls=tuple(self.calls),
                channel="commentary" if self.channel == "commentary" and not self.calls else None,
                trained=self.trained == {True},
                truncated=self.truncated,
            )
        )
        self.open_calls += [call.id for call in self.calls if call.id is not None]
        self.reasoning, self.texts, self.calls, self.channel = [], [], [], None
        self.trained, self.truncated = set(), False

    def _system(self, message: Mapping[str, Any], where: str) -> None:
        texts: list[str] = []
        for part in _parts(message, where):
            if part.get("type") == "system_content":
                if part.get("tools"):
                    raise _refused(f"{where} has tools of Harmony's own")
                self.settings = replace(
                    self.settings, **{name: part[name] for name in SETTINGS if part.get(name) is not None}
                )
            else:
                texts.append(_text(part, where))
        self._instruct(texts)

    def _developer(self, message: Mapping[str, Any], where: str) -> None:
        texts: list[str] = []
        for part in _parts(message, where):
            if part.get("type") != "developer_content":
                texts.append(_text(part, where))
                continue
            texts.append(part.get("instructions") or "")
            for name, namespace in (part.get("tools") or {}).items():
                if name != "functions":
                    raise _refused(f"{where} has tools of the namespace {name!r}")
                self.tools += namespace.get("tools") or ()
        self._instruct(texts)

    def _instruct(self, texts: list[str]) -> None:
        if any(texts):
            self.messages.append(Message(role="system", texts=tuple(filter(None, texts))))


def _parts(message: Mapping[str, Any], where: str) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content or ""}]
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise _refused(f"the content of {where} is no text and no list of parts")
    return content


def _texts(message: Mapping[str, Any], where: str) -> tuple[str, ...]:
    return tuple(text for part in _parts(message, where) if (text := _text(part, where)))


def _text(part: Mapping[str, Any], where: str) -> str:
    text = part.get("text")
    if not isinstance(text, str):
        raise _refused(f"a part of {where} is no text")
    return text


def _refused(detail: str) -> RowRefusedError:
    return RowRefusedError(Reason.FIELD_INVALID, detail)
