"""Messages of openai-harmony's JSON → messages of OpenAI's form; an answer that is rendered text of Harmony.

In: a message with channel, recipient and content; or the text of an answer, and the parser `Reading.rendered`. Out:
messages for `spanloom.conversations.reading.messages`. Harmony writes reasoning, text and calls of one assistant
message as several messages, so each is a `Part`.

    analysis                          reasoning
    commentary to functions.NAME      a call
    commentary, final                 text on its channel
    tool functions.NAME               a result
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spanloom.conversations.reading.tools import PREFIX
from spanloom.conversations.turns import Reading, RecordRefusedError, Refusal

CHANNELS = ("analysis", "commentary", "final")
CALL_TYPES = (None, "json", "<|constrain|>json", "<|constrain|> json")
START, CHANNEL, ASSISTANT = "<|start|>", "<|channel|>", "<|start|>assistant"
_ENDS = ("<|return|>", "<|end|>", "<|call|>")


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A message of a form that writes reasoning, text and calls of one assistant message as several messages.

    `channel`: of the assistant's text, if the form names it.
    """

    message: dict[str, Any]
    channel: Literal["commentary", "final"] | None = None


def assistant_part(message: dict[str, Any], where: str) -> Part:
    """A message of the assistant. Raises RecordRefusedError for a channel, recipient or content type that conversations
    cannot hold."""
    keys = {key: value for key, value in message.items() if value is not None}
    channel, recipient, kind_of = keys.pop("channel", None), keys.pop("recipient", None), keys.pop("content_type", None)
    if channel not in CHANNELS:
        raise RecordRefusedError(
            Refusal.ANSWER_MISSING, f"{where} (assistant) has the channel {channel!r}, not one of {', '.join(CHANNELS)}"
        )
    text = _text(keys.pop("content", None), where)
    if recipient not in (None, "all"):
        if channel == "final" or not isinstance(recipient, str) or not recipient.startswith(PREFIX):
            raise RecordRefusedError(
                Refusal.TOOL_CALL_INVALID, f"{where} (assistant) is to {recipient!r} on {channel}, not to a function"
            )
        if kind_of not in CALL_TYPES or channel != "commentary":
            detail = f"{where} (assistant) calls on {channel} with a text of type {kind_of!r}, not json on commentary"
            raise RecordRefusedError(Refusal.TOOL_CALL_INVALID, detail)
        return Part(message={**keys, "tool_calls": [{"name": recipient, "arguments": text}]})
    if kind_of is not None:
        raise RecordRefusedError(Refusal.KEY_UNKNOWN, f"{where} (assistant) has the content_type {kind_of!r}")
    if channel == "analysis":
        return Part(message={**keys, "reasoning": text})
    return Part(message={**keys, "content": text}, channel=channel)


def plain_message(message: dict[str, Any]) -> dict[str, Any]:
    """A message of another author, without the header, which Harmony writes again."""
    is_tool = message.get("role") == "tool"
    header = (
        ("channel", ("commentary", "analysis") if is_tool else ()),
        ("recipient", ("assistant",) if is_tool else (None,)),
        ("content_type", ()),
    )
    keys = {key: value for key, value in message.items() if value is not None}
    for name, known in header:
        if name in keys and keys[name] in known:
            del keys[name]
    return keys


def _text(content: Any, where: str) -> str:
    texts = [part.get("text") for part in content] if isinstance(content, list) else [content]
    if not all(isinstance(text, str) for text in texts):
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{where}: the content is no text")
    return "".join(map(str, texts))


def is_rendered_answer(value: Any) -> bool:
    """Whether a text begins as Harmony renders an answer."""
    return isinstance(value, str) and value.lstrip().startswith((CHANNEL, ASSISTANT))


def whole_text(text: str) -> str:
    """A rendered text without the white space around it: before its first mark, and after its last one."""
    text = text.lstrip()
    bare = text.rstrip()
    return bare if bare.endswith(_ENDS) else text


def rendered_parts(content: Any, where: str, reading: Reading) -> list[Any]:
    """The messages of an answer that is rendered text of Harmony; empty for any other content, and for
    `--text-as-is`.

    Raises RecordRefusedError for a text that its messages do not render to again.
    """
    if reading.text_as_is or reading.rendered is None or not is_rendered_answer(content):
        return []
    text = whole_text(content)
    try:
        return _parts(reading.rendered(text if text.startswith(ASSISTANT) else ASSISTANT + text))
    except RecordRefusedError as fault:
        detail = f"{where} begins like rendered text of Harmony, but {fault.detail}"
        raise RecordRefusedError(Refusal.MARKUP_UNCLEAR, detail, "--text-as-is keeps it as text") from None


def _parts(messages: Sequence[dict[str, Any]]) -> list[Any]:
    """The messages of a rendered answer: parts of the assistant, results of tools. Raises RecordRefusedError."""
    parts: list[Any] = []
    for number, message in enumerate(messages):
        where = f"its message {number}"
        if message.get("role") not in ("assistant", "tool"):
            raise RecordRefusedError(Refusal.MARKUP_UNCLEAR, f"{where} is from {message.get('role')!r}")
        parts.append(assistant_part(message, where) if message["role"] == "assistant" else plain_message(message))
    return parts
