"""A row of a source → the conversation to be proven: messages, tools, template variables, weight.

In: `messages_json` of a row, the format of the source, what the template reads. Out: a `SourceRow`. Raises
RowRefusedError for a row that is not a valid conversation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spanloom.conversations import conversation as neutral
from spanloom.conversations import turns
from spanloom.conversations.runs import run_fault
from spanloom.conversations.source.format import ANY_MODEL, SourceFormat
from spanloom.conversations.source.rejects import Reason, RowRefusedError
from spanloom.conversations.source.structure import parse_conversation
from spanloom.families.models.conversation import Conversation, Message
from spanloom.families.models.source.harmony import neutral_conversation
from spanloom.families.models.workarounds.adapted import AS_GIVEN, Adapting, adapted
from spanloom.tokenizers.chat_template import RESERVED, ChatTemplate

REASONING_SEPARATOR = "\n\n"
"""Joins the parts of a reasoning. The parts of a content are joined without a separator, as templates do."""

DEFAULT_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
"""The default of Harmony's system message, which is not the conversation's own text: it may be dropped."""

VARIABLES = ("reasoning_effort", "model_identity")
"""Settings of a conversation that become template variables if the template reads them."""


@dataclass(frozen=True, kw_only=True)
class SourceRow:
    """A conversation to be proven, and the rest of its row.

    weight      the weight of its documents in a loss
    commentary  places of assistant messages whose text is commentary although they make no call
    unread      names of settings and template variables that the template does not read
    identity    the conversation's own model identity if the template has no variable for it and would drop it
    """

    conversation: Conversation
    weight: float
    commentary: frozenset[int]
    unread: tuple[str, ...] = ()
    identity: str | None = None


@dataclass(frozen=True)
class TemplateWords:
    """What a template reads: its variables, whether it has a `developer` role, what is adapted for it."""

    variables: frozenset[str]
    developer: bool
    adapting: Adapting = AS_GIVEN

    @classmethod
    def of(cls, template: ChatTemplate, adapting: Adapting = AS_GIVEN) -> "TemplateWords":
        return cls(template.variables(), "developer" in template.text, adapting)


def read_row(
    messages_json: str | bytes | None,
    source_format: SourceFormat,
    words: TemplateWords,
    *,
    name: str,
    any_runs: bool = False,
) -> SourceRow:
    """The conversation of a row with the id `name`. `any_runs`: do not refuse it for its `run_fault`.

    Raises RowRefusedError.
    """
    if source_format == ANY_MODEL:
        whole = neutral.parse_conversation(messages_json)
    else:
        whole = neutral_conversation(parse_conversation(messages_json, source_format))
    if not any_runs and (fault := run_fault(whole.messages)) is not None:
        raise RowRefusedError(fault.reason, fault.detail, fault.remedy)
    if taken := sorted(RESERVED & set(whole.chat_template_kwargs)):
        detail = f"chat_template_kwargs sets {taken[0]}, which rendering gives the template"
        raise RowRefusedError(Reason.FIELD_INVALID, detail, "spanloom convert --drop chat_template_kwargs")
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
    spoken = frozenset(
        place for place, message in enumerate(whole.messages) if message.channel == "commentary" and not message.calls
    )
    conversation, commentary = adapted(conversation, spoken, words.adapting)
    return SourceRow(
        conversation=conversation,
        weight=1.0 if whole.weight is None else whole.weight,
        commentary=commentary,
        unread=tuple(unread),
        identity=dropped_identity,
    )


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
    if message.truncated:
        written["truncated"] = True
    return written
