"""Chat records for tests, and the Harmony messages that they become."""

from typing import Any

import pytest

from spanloom.conversations.arranged import Arrangement, arranged
from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.source.rejects import RowRefusedError
from spanloom.conversations.turns import Dropping, Reading, RecordRefusedError, Refusal
from spanloom.families.harmony.contract.messages import SystemFields, harmony_messages
from spanloom.families.harmony.convert.conversion import REMEDIES

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather now.", "parameters": PARAMETERS},
}


NO_FIELDS = SystemFields()


def convert(
    record: Any,
    *,
    maps: tuple[str, ...] = (),
    think_tags: bool | None = None,
    drop: tuple[str, ...] = (),
    in_turn: bool = False,
    system_fields: SystemFields = NO_FIELDS,
    dropping: Dropping | None = None,
) -> list[dict[str, Any]]:
    """The Harmony messages of a record, the system message left away."""
    dropping = dropping or Dropping(names=frozenset(drop))
    form = recognise(record, key_map(maps), "here")
    chat = read_record(record, form, Reading(think_tags=think_tags), dropping)
    arrangement = Arrangement(settings=system_fields.settings, developer=system_fields.developer, calls_in_turn=in_turn)
    system, *messages = harmony_messages(arranged(chat, arrangement, dropping))
    assert system["role"] == "system"
    return messages


def refusal(record: Any, **options: Any) -> tuple[Refusal, str, str | None]:
    with pytest.raises((RecordRefusedError, RowRefusedError)) as refused:
        convert(record, **options)
    reason = Refusal(refused.value.reason.value)
    remedy = refused.value.remedy if isinstance(refused.value, RecordRefusedError) else REMEDIES.get(reason)
    return reason, refused.value.detail, remedy


def said(role: str, text: str, channel: str | None = None, **more: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role, **more, "content": [{"type": "text", "text": text}]}
    return message if channel is None else {**message, "channel": channel}


def called(name: str, arguments: str) -> dict[str, Any]:
    return said("assistant", arguments, "commentary", recipient=f"functions.{name}", content_type="<|constrain|>json")


def answered(name: str, text: str) -> dict[str, Any]:
    return said("tool", text, "commentary", name=f"functions.{name}", recipient="assistant")


def call(name: str = "weather", arguments: Any = '{"city": "Ulm"}', identity: str | None = "c1") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def messages(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(turns), **more}


def thought(*parts: dict[str, Any]) -> dict[str, Any]:
    """An answer whose reasoning is parts itself, as Mistral has it."""
    return {"role": "assistant", "content": [{"type": "thinking", "thinking": list(parts)}, {"text": "A"}]}


USER = {"role": "user", "content": "Q"}
ANSWER = {"role": "assistant", "content": "A"}
