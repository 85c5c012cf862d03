"""A chat record → the messages of a whole Harmony conversation.

In: `ChatRecord` and `SystemFields`. Out: messages as openai-harmony's JSON has them, or a refusal.

    system      identity, effort, dates, channels: from options alone; what is not chosen stays out of the render
    developer   instructions (what others call the system prompt) and definitions of functions, where there are any
    user        with a name where the record has one
    assistant   reasoning on `analysis`; text before a call, and calls (to `functions.NAME`), on `commentary`; an answer
                on `final`
    tool        what a function answered: author `functions.NAME`, to the assistant, on `commentary`

Harmony has one call at a time. Several calls at once are refused, or put in turn, each with its result behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from spanloom.conversations.tools import PREFIX
from spanloom.conversations.turns import Call, ChatRecord, Dropping, RecordRefusedError, Refusal, Turn
from spanloom.errors import SpanloomError

CALL_CONTENT_TYPE = "<|constrain|>json"
"""What a call's header says of its text: as in OpenAI's guide to the format, and as gpt-oss writes it."""
VALID_CHANNELS = ("analysis", "commentary", "final")

Effort = Literal["Low", "Medium", "High"]

UNANSWERED, UNPROMPTED = "unanswered", "unprompted"
"""Names for `--drop`: messages after the last answer, and messages of the assistant before the first user's."""


@dataclass(frozen=True, kw_only=True)
class SystemFields:
    """What is said around every conversation. None leaves a line of the system message out of the render.

    `developer`: instructions for conversations that bring none.
    """

    model_identity: str | None = None
    reasoning_effort: Effort | None = None
    start_date: str | None = None
    knowledge_cutoff: str | None = None
    developer: str | None = None


def effort_of(given: str) -> Effort:
    """`low` → `Low`. Raises SpanloomError for what is no effort."""
    for effort in get_args(Effort):
        if given.capitalize() == effort:
            return cast(Effort, effort)
    raise SpanloomError(f"there is no reasoning effort {given!r}", remedy=f"use one of: {', '.join(get_args(Effort))}")


Message = dict[str, Any]


def harmony_messages(
    record: ChatRecord, fields: SystemFields, dropping: Dropping, *, calls_in_turn: bool = False
) -> list[Message]:
    """The messages of a conversation, the system message first. Raises RecordRefusedError.

    `calls_in_turn`: calls made at once stand one after the other, each followed by its own result.
    """
    turns = _answered(_prompted(record.turns, dropping), dropping)
    fields = _own_fields(record, fields)
    spoken = _Spoken(calls_in_turn)
    for number, turn in enumerate(turns):
        spoken.add(turn, answered=any(later.role == "tool" for later in turns[number + 1 : number + 2]))
    spoken.end()
    return [system_message(fields), *_developer_message(record, fields), *spoken.messages]


def _own_fields(record: ChatRecord, fields: SystemFields) -> SystemFields:
    """The fields of options, and over them those that the record brings itself."""
    own: dict[str, Any] = dict(record.settings)
    if (effort := own.get("reasoning_effort")) is not None:
        try:
            own["reasoning_effort"] = effort_of(effort)
        except SpanloomError as fault:
            raise RecordRefusedError(Refusal.KEY_UNKNOWN, str(fault.what), key="reasoning_effort") from None
    return replace(fields, **own) if own else fields


def system_message(fields: SystemFields) -> Message:
    """The system message. Every field is written: where one is missing, openai-harmony puts its own default."""
    content = {
        "type": "system_content",
        "model_identity": fields.model_identity,
        "reasoning_effort": fields.reasoning_effort,
        "conversation_start_date": fields.start_date,
        "knowledge_cutoff": fields.knowledge_cutoff,
        "channel_config": {"valid_channels": list(VALID_CHANNELS), "channel_required": True},
    }
    return {"role": "system", "content": [content]}


def _developer_message(record: ChatRecord, fields: SystemFields) -> list[Message]:
    instructions = record.instructions if record.instructions is not None else fields.developer
    content: dict[str, Any] = {"type": "developer_content"}
    if instructions is not None:
        content["instructions"] = instructions
    if record.tools:
        content["tools"] = {"functions": {"name": "functions", "tools": list(record.tools)}}
    return [{"role": "developer", "content": [content]}] if len(content) > 1 else []


def _prompted(turns: Sequence[Turn], dropping: Dropping) -> Sequence[Turn]:
    """The turns from the first of the user on."""
    first = next((index for index, turn in enumerate(turns) if turn.role == "user"), len(turns))
    early = turns[:first]
    if not any(turn.role == "assistant" for turn in early):
        return turns
    if UNPROMPTED not in dropping.names:
        answered = any(turn.role == "assistant" for turn in turns[first:])
        raise RecordRefusedError(
            Refusal.ASSISTANT_FIRST,
            f"message {early[0].number} ({early[0].role}) comes before the user has said anything",
            f"--drop {UNPROMPTED} leaves out what comes before the first message of the user" if answered else None,
        )
    _count(early, UNPROMPTED, dropping)
    return turns[first:]


def _answered(turns: Sequence[Turn], dropping: Dropping) -> Sequence[Turn]:
    """The turns up to the last of the assistant."""
    last = next((index for index in range(len(turns), 0, -1) if turns[index - 1].role == "assistant"), 0)
    if not last:
        raise RecordRefusedError(Refusal.NO_ASSISTANT, "no message is from the assistant: nothing would be trained")
    late = turns[last:]
    if late and UNANSWERED not in dropping.names:
        raise RecordRefusedError(
            Refusal.UNANSWERED,
            f"message {late[0].number} ({late[0].role}) has no answer: it would be in no document",
            f"--drop {UNANSWERED} leaves out what comes after the last answer",
        )
    _count(late, UNANSWERED, dropping)
    return turns[:last]


def _count(turns: Sequence[Turn], name: str, dropping: Dropping) -> None:
    for turn in turns:
        texts = (*turn.reasoning, *turn.texts, *(call.arguments for call in turn.calls))
        dropping.count(name, "".join(texts))


class _Spoken:
    """Messages of the turns so far. `open`: calls that have no result yet, in order, with their results where calls
    are put in turn."""

    def __init__(self, calls_in_turn: bool) -> None:
        self.messages: list[Message] = []
        self._in_turn = calls_in_turn
        self._open: list[Call] = []
        self._results: dict[int, Message] = {}
        self._done = ""

    def add(self, turn: Turn, *, answered: bool) -> None:
        """`answered`: a result follows."""
        where = f"message {turn.number}"
        if turn.role == "system":
            raise RecordRefusedError(
                Refusal.SYSTEM_NOT_FIRST,
                f"{where} is a system message that is not the first",
                "--drop role:system leaves out system messages",
            )
        if turn.role == "tool":
            self._result(turn, where)
            return
        self._close(where)
        if turn.role == "user":
            self._end_of_run(where)
            named = {} if turn.name is None else {"name": turn.name}
            self.messages.append({"role": "user", **named, "content": _content(turn.texts)})
            return
        if self._done == "final":
            raise RecordRefusedError(
                Refusal.ASSISTANT_AFTER_ANSWER, f"{where} (assistant) follows an answer of the assistant"
            )
        if self._open:
            raise RecordRefusedError(
                Refusal.TOOL_CALLS_PARALLEL,
                f"{where} (assistant) comes before the result of the call of {self._open[0].name}",
                "--drop tool_calls,role:tool leaves calls and results out",
            )
        self._assistant(turn, where, answered)

    def end(self) -> None:
        """After the last turn, which is the assistant's."""
        self._close("the end")
        self._end_of_run("the end")

    def _assistant(self, turn: Turn, where: str, answered: bool) -> None:
        if turn.reasoning:
            self._say("analysis", turn.reasoning)
        if turn.texts:
            self._say("commentary" if turn.calls else turn.channel or "final", turn.texts)
        if len(turn.calls) > 1 and not self._in_turn:
            raise RecordRefusedError(
                Refusal.TOOL_CALLS_PARALLEL,
                f"{where} makes {len(turn.calls)} calls at once; Harmony has one at a time",
                "--calls-in-turn puts them one after the other, each with its result" if answered else None,
            )
        self._open = list(turn.calls)
        if len(turn.calls) == 1:
            self.messages.append(_call(turn.calls[0]))
            self._done = "call"

    def _say(self, channel: str, texts: tuple[str, ...]) -> None:
        self.messages.append({"role": "assistant", "content": _content(texts), "channel": channel})
        self._done = channel

    def _result(self, turn: Turn, where: str) -> None:
        index = self._call_of(turn, where)
        call = self._open[index]
        message = {
            "role": "tool",
            "name": PREFIX + call.name,
            "content": _content(turn.texts),
            "channel": "commentary",
            "recipient": "assistant",
        }
        if len(self._open) == 1:
            self.messages.append(message)
            self._open, self._done = [], "result"
            return
        self._results[index] = message

    def _call_of(self, turn: Turn, where: str) -> int:
        """Which open call a result belongs to: by its id, else by its name where one alone has it."""
        waiting = [index for index in range(len(self._open)) if index not in self._results]
        if turn.call_id is not None and any(self._open[index].id is not None for index in waiting):
            fitting = [index for index in waiting if self._open[index].id == turn.call_id]
        else:
            fitting = [index for index in waiting if turn.name in (None, self._open[index].name)]
        if len(fitting) != 1 or turn.name not in (None, self._open[fitting[0]].name):
            given = {"tool_call_id": turn.call_id, "name": turn.name}
            said = ", ".join(f"{key} {value!r}" for key, value in given.items() if value is not None) or "no name"
            raise RecordRefusedError(
                Refusal.TOOL_RESULT_UNMATCHED,
                f"{where} (tool; {said}) belongs to no one call before it",
                "--drop role:tool leaves out what tools answered",
            )
        return fitting[0]

    def _close(self, where: str) -> None:
        """Calls made at once, put in turn."""
        if len(self._open) < 2:
            return
        if len(self._results) < len(self._open):
            raise RecordRefusedError(
                Refusal.TOOL_CALLS_PARALLEL,
                f"before {where}, calls made at once have no result each",
                "--drop tool_calls,role:tool leaves calls and results out",
            )
        for index, call in enumerate(self._open):
            self.messages += [_call(call), self._results[index]]
        self._open, self._results, self._done = [], {}, "result"

    def _end_of_run(self, where: str) -> None:
        if self._done in ("analysis", "commentary"):
            does = "only reasons" if self._done == "analysis" else "only speaks before a call"
            raise RecordRefusedError(
                Refusal.ANSWER_MISSING, f"before {where}, the assistant {does}: there is no answer and no call"
            )
        self._done, self._open = "", []


def _call(call: Call) -> Message:
    return {
        "role": "assistant",
        "content": [{"type": "text", "text": call.arguments}],
        "channel": "commentary",
        "recipient": PREFIX + call.name,
        "content_type": CALL_CONTENT_TYPE,
    }


def _content(texts: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts or ("",)]
