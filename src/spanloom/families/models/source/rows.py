"""A row of a source → what is proven of it: messages, tools, template variables, weight.

In: `messages_json` of a row, the format of the source, the template that the messages are for. Out: a `SourceRow`.
Raises RowRefusedError for a row that is no conversation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spanloom.conversations import conversation as neutral
from spanloom.conversations import turns
from spanloom.conversations.source.format import ANY_MODEL, SourceFormat
from spanloom.conversations.source.rejects import Reason, RowRefusedError
from spanloom.conversations.source.structure import parse_conversation
from spanloom.families.models.conversation import Conversation, Message
from spanloom.families.models.source.harmony import neutral_conversation
from spanloom.tokenizers.chat_template import ChatTemplate

_SPAN_OF_CHANNEL = {"analysis": 1, "final": 2, "commentary": 3}

REASONING_SEPARATOR = "\n\n"
"""Between the parts of a reasoning. Parts of a content are one text without a separator, as templates join them."""

DEFAULT_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
"""What Harmony's system message says where a conversation says nothing else: no text of the conversation's own."""

VARIABLES = ("reasoning_effort", "model_identity")
"""Settings of a conversation that are template variables where the template asks for them."""


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """A conversation to be proven, and what a row says beside it.

    weight      of its documents in a loss
    commentary  the places of assistant messages whose text is commentary, though they make no call
    unread      names of settings and template variables that the template does not ask for
    identity    a model's identity of its own that the template has no variable for: a text that would be dropped
    """

    conversation: Conversation
    weight: float
    commentary: frozenset[int]
    unread: tuple[str, ...] = ()
    identity: str | None = None


@dataclass(frozen=True)
class TemplateWords:
    """What decides how messages are handed to a template: the variables it asks for, whether it knows developers."""

    variables: frozenset[str]
    developer: bool

    @classmethod
    def of(cls, template: ChatTemplate) -> "TemplateWords":
        return cls(template.variables(), "developer" in template.text)


def read_row(
    messages_json: str | bytes | None, source_format: SourceFormat, words: TemplateWords, *, name: str
) -> SourceRow:
    """The conversation of a row with the id `name`. Raises RowRefusedError."""
    if source_format == ANY_MODEL:
        whole = neutral.parse_conversation(messages_json)
    else:
        whole = _of_harmony(messages_json, source_format)
    messages = tuple(_message(message, words) for message in whole.messages)
    stated = whole.settings.as_dict()
    settings = {key: stated[key] for key in VARIABLES if key in stated and key in words.variables}
    identity = stated.get("model_identity")
    dropped_identity = identity if "model_identity" not in settings and identity != DEFAULT_IDENTITY else None
    unread = [
        key for key in (*stated, *whole.chat_template_kwargs) if key not in settings and key not in words.variables
    ]
    conversation = Conversation(
        id=name,
        messages=messages,
        tools=tuple({"type": "function", "function": dict(tool)} for tool in whole.tools) or None,
        variables={**settings, **whole.chat_template_kwargs},
    )
    if not conversation.runs():
        raise RowRefusedError(
            Reason.NOTHING_TRAINED, "no message of the assistant follows another message: no prompt leads to it"
        )
    return SourceRow(
        conversation=conversation,
        weight=1.0 if whole.weight is None else whole.weight,
        commentary=frozenset(
            place
            for place, message in enumerate(whole.messages)
            if message.channel == "commentary" and not message.calls
        ),
        unread=tuple(unread),
        identity=dropped_identity,
    )


def _of_harmony(messages_json: str | bytes | None, source_format: SourceFormat) -> neutral.Conversation:
    labelled = parse_conversation(messages_json, source_format, _SPAN_OF_CHANNEL)
    messages = [
        {**message, "trained": False} if message["role"] == "assistant" and not label else message
        for message, label in zip(labelled.messages, labelled.labels.tolist(), strict=True)
    ]
    return neutral_conversation(messages, weight=labelled.weight)


def _message(message: turns.Message, words: TemplateWords) -> Message:
    role = "system" if message.role == "developer" and not words.developer else message.role
    written: dict[str, Any] = {"role": role, "content": "".join(message.texts)}
    if message.reasoning:
        written["reasoning"] = REASONING_SEPARATOR.join(message.reasoning)
    if message.calls:
        written["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.calls
        ]
    named: Mapping[str, str | None] = {"tool_call_id": message.call_id, "name": message.name}
    written |= {key: value for key, value in named.items() if value is not None}
    if not message.trained:
        written["trained"] = False
    return written
