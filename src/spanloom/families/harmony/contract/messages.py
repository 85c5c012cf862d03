"""A conversation of any kind → the messages of a Harmony conversation.

In: a `Conversation`. Out: messages in openai-harmony's JSON form, or an error if Harmony cannot represent it.

    system      identity, effort, dates, channels: fields that the conversation lacks are not rendered
    developer   instructions (elsewhere called the system prompt) and definitions of functions, if there are any
    user        with a name if the record has one
    assistant   reasoning on `analysis`; text before a call, and calls (to `functions.NAME`), on `commentary`; an answer
                on `final`
    tool        the result of a call: author `functions.NAME`, recipient assistant, on `commentary`

Harmony has one developer message, at the beginning, and one call at a time. Messages that are not trained have the key
`trained`, false; the last one of a truncated message has the key `truncated`, true.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from spanloom.conversations.conversation import Conversation, Settings
from spanloom.conversations.reading.tools import PREFIX
from spanloom.conversations.source.rejects import Reason, RowRefusedError
from spanloom.conversations.turns import Call, Message
from spanloom.errors import SpanloomError

CALL_CONTENT_TYPE = "<|constrain|>json"
"""The content type in a call's header, as in OpenAI's guide to the format, and as gpt-oss writes it."""
VALID_CHANNELS = ("analysis", "commentary", "final")

Effort = Literal["Low", "Medium", "High"]
HarmonyMessage = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class SystemFields:
    """Texts for every conversation. With None, that line of the system message is not rendered.

    `developer`: instructions for conversations that have no instructions.
    """

    model_identity: str | None = None
    reasoning_effort: Effort | None = None
    start_date: str | None = None
    knowledge_cutoff: str | None = None
    developer: str | None = None

    @property
    def settings(self) -> Settings:
        """The same fields as the `Settings` of a conversation; without `developer`."""
        return Settings(
            reasoning_effort=self.reasoning_effort and self.reasoning_effort.lower(),
            model_identity=self.model_identity,
            conversation_start_date=self.start_date,
            knowledge_cutoff=self.knowledge_cutoff,
        )


def effort_of(name: str) -> Effort:
    """`low` → `Low`. Raises SpanloomError for an unknown effort."""
    for effort in get_args(Effort):
        if name.capitalize() == effort:
            return cast(Effort, effort)
    raise SpanloomError(f"there is no reasoning effort {name!r}", remedy=f"use one of: {', '.join(get_args(Effort))}")


def harmony_messages(conversation: Conversation) -> list[HarmonyMessage]:
    """The messages of a conversation, the system message first.

    Raises RowRefusedError if Harmony cannot represent it: an unknown effort, two texts of instructions, instructions
    after the start, parallel calls, a result without its call, an answer after an answer, an assistant run that ends
    without an answer or a call.
    """
    system = system_message(_fields(conversation.settings))
    messages, first, instructions = conversation.messages, 0, []
    while first < len(messages) and messages[first].role in ("system", "developer"):
        if messages[first].texts:
            instructions.append("".join(messages[first].texts))
        first += 1
    if len(instructions) > 1:
        raise RowRefusedError(
            Reason.SYSTEM_TWICE, "there are two texts of instructions; Harmony has one developer message"
        )
    spoken = _Spoken()
    for number, message in enumerate(messages[first:], start=first):
        spoken.add(message, f"message {number}")
    spoken.end()
    return [system, *_developer_message(next(iter(instructions), None), conversation.tools), *spoken.messages]


def harmony_fault(conversation: Conversation) -> RowRefusedError | None:
    """Why Harmony cannot represent a conversation; None if it can."""
    effort = conversation.settings.reasoning_effort
    if (effort is None or effort.capitalize() in get_args(Effort)) and _is_turn_by_turn(conversation.messages):
        return None
    try:
        harmony_messages(conversation)
    except RowRefusedError as refused:
        return refused
    return None


def _is_turn_by_turn(messages: Sequence[Message]) -> bool:
    """Whether a conversation has the most common form, which Harmony can represent: an optional system text, then user
    and assistant alternate. The assistant may make calls before its answer, each followed by its result."""
    expected, call = "user", None
    for number, message in enumerate(messages):
        role = message.role
        if number == 0 and role in ("system", "developer"):
            continue
        if role != expected:
            return False
        if role == "user":
            expected = "assistant"
        elif role == "tool":
            if call is None or call.id is None or call.id != message.call_id or message.name not in (None, call.name):
                return False
            expected = "assistant"
        elif message.channel is not None or len(message.calls) > 1:
            return False
        elif message.calls:
            expected, call = "tool", message.calls[0]
        elif message.texts:
            expected = "user"
        else:
            return False
    return expected == "user" and messages[-1].role == "assistant"


def _fields(settings: Settings) -> SystemFields:
    effort = settings.reasoning_effort
    try:
        known = None if effort is None else effort_of(effort)
    except SpanloomError as fault:
        raise RowRefusedError(Reason.EFFORT_UNKNOWN, fault.what) from None
    return SystemFields(
        model_identity=settings.model_identity,
        reasoning_effort=known,
        start_date=settings.conversation_start_date,
        knowledge_cutoff=settings.knowledge_cutoff,
    )


def system_message(fields: SystemFields) -> HarmonyMessage:
    """The system message. Every field is written, because openai-harmony fills a missing field with its own default."""
    content = {
        "type": "system_content",
        "model_identity": fields.model_identity,
        "reasoning_effort": fields.reasoning_effort,
        "conversation_start_date": fields.start_date,
        "knowledge_cutoff": fields.knowledge_cutoff,
        "channel_config": {"valid_channels": list(VALID_CHANNELS), "channel_required": True},
    }
    return {"role": "system", "content": [content]}


def _developer_message(instructions: str | None, tools: Sequence[Mapping[str, Any]]) -> list[HarmonyMessage]:
    content: dict[str, Any] = {"type": "developer_content"}
    if instructions is not None:
        content["instructions"] = instructions
    if tools:
        content["tools"] = {"functions": {"name": "functions", "tools": [_described(tool) for tool in tools]}}
    return [{"role": "developer", "content": [content]}] if len(content) > 1 else []


def _described(tool: Mapping[str, Any]) -> dict[str, Any]:
    described = {"name": tool["name"], "description": tool.get("description") or ""}
    parameters = tool.get("parameters")
    return described if parameters is None else {**described, "parameters": parameters}


class _Spoken:
    """The messages so far. `_open`: the call that has no result yet."""

    def __init__(self) -> None:
        self.messages: list[HarmonyMessage] = []
        self._open: Call | None = None
        self._done = ""

    def add(self, message: Message, where: str) -> None:
        if message.role in ("system", "developer"):
            raise RowRefusedError(Reason.SYSTEM_NOT_FIRST, f"{where} is a {message.role} message that is not the first")
        if message.role == "tool":
            self._result(message, where)
        elif message.role == "user":
            self._end_of_run(where)
            named = {} if message.name is None else {"name": message.name}
            self.messages.append({"role": "user", **named, "content": _content(message.texts)})
        else:
            self._assistant(message, where)

    def end(self) -> None:
        """After the last message."""
        self._end_of_run("the end")

    def _assistant(self, message: Message, where: str) -> None:
        if self._done == "final":
            raise RowRefusedError(
                Reason.ASSISTANT_AFTER_ANSWER, f"{where} (assistant) follows an answer of the assistant"
            )
        if self._open is not None:
            raise RowRefusedError(
                Reason.TOOL_CALLS_PARALLEL,
                f"{where} (assistant) comes before the result of the call of {self._open.name}",
            )
        if len(message.calls) > 1:
            raise RowRefusedError(
                Reason.TOOL_CALLS_PARALLEL,
                f"{where} makes {len(message.calls)} calls at once; Harmony has one at a time",
            )
        first = len(self.messages)
        if message.reasoning:
            self._say("analysis", message.reasoning)
        if message.texts:
            self._say("commentary" if message.calls else message.channel or "final", message.texts)
        for call in message.calls:
            self.messages.append(_call(call))
            self._open, self._done = call, "call"
        if not message.trained:
            for spoken in self.messages[first:]:
                spoken["trained"] = False
        if message.truncated and len(self.messages) > first:
            self.messages[-1]["truncated"] = True

    def _say(self, channel: str, texts: tuple[str, ...]) -> None:
        self.messages.append({"role": "assistant", "content": _content(texts), "channel": channel})
        self._done = channel

    def _result(self, message: Message, where: str) -> None:
        """Adds the result of the open call. Both ids must be equal if both are given, and so must the names."""
        call = self._open
        by_id = call is not None and None not in (call.id, message.call_id)
        if call is None or message.name not in (None, call.name) or (by_id and call.id != message.call_id):
            keys = {"tool_call_id": message.call_id, "name": message.name}
            named = ", ".join(f"{key} {value!r}" for key, value in keys.items() if value is not None) or "no name"
            raise RowRefusedError(
                Reason.TOOL_RESULT_UNMATCHED, f"{where} (tool; {named}) belongs to no one call before it"
            )
        self.messages.append(
            {
                "role": "tool",
                "name": PREFIX + call.name,
                "content": _content(message.texts),
                "channel": "commentary",
                "recipient": "assistant",
            }
        )
        self._open, self._done = None, "result"

    def _end_of_run(self, where: str) -> None:
        if self._done in ("analysis", "commentary"):
            does = "only reasons" if self._done == "analysis" else "only speaks before a call"
            raise RowRefusedError(
                Reason.ANSWER_MISSING, f"before {where}, the assistant {does}: there is no answer and no call"
            )
        self._done, self._open = "", None


def _call(call: Call) -> HarmonyMessage:
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": call.arguments}],
        "channel": "commentary",
        "recipient": PREFIX + call.name,
        "content_type": CALL_CONTENT_TYPE,
    }


def _content(texts: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts or ("",)]
