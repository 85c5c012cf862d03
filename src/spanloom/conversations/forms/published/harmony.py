"""openai-harmony's own JSON: `Conversation.to_dict`, a list of messages with channels, recipients and typed contents.

In: a record with such a list under `messages`. Out: its messages in OpenAI's form, each on its channel, and the fields
of its system message. The options give the fields that the record lacks; openai-harmony would use its own defaults.

    system_content      model_identity, reasoning_effort, conversation_start_date, knowledge_cutoff
    developer_content   instructions, tools under `functions`
    assistant           analysis: reasoning; commentary to functions.NAME: a call; commentary; final
    tool functions.NAME a result
"""

from collections.abc import Mapping, Sequence
from typing import Any

from spanloom.conversations.conversation import SETTINGS
from spanloom.conversations.forms.form import Draft, FormKind, Taken, objects, parts
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.forms.message_lists import messages
from spanloom.conversations.reading.harmony import CHANNELS, assistant_part, plain_message
from spanloom.conversations.turns import RecordRefusedError, Refusal, kind, says_nothing


def _recognises(record: Mapping[str, Any], names: KeyMap) -> bool:
    value = names.found("messages", record)
    return bool(value) and any(
        message.get("channel") in CHANNELS
        or any(part.get("type") in ("system_content", "developer_content") for part in parts(message))
        for message in objects(record[value[0]])
    )


def _draft(taken: Taken) -> Draft:
    return draft_of(messages(taken))


def draft_of(values: Sequence[Any]) -> Draft:
    """The draft of Harmony's messages. Raises RecordRefusedError for content that a render would change."""
    made: list[Any] = []
    settings: dict[str, str | None] = {}
    system: list[Any] = []
    tools: list[Any] = []
    for number, message in enumerate(values):
        where = f"message {number}"
        if not isinstance(message, dict):
            made.append(message)
            continue
        typed = [part for part in parts(message) if part.get("type") in ("system_content", "developer_content")]
        if typed:
            for part in typed:
                _read_typed(part, where, settings, system, tools)
            if len(typed) < len(message["content"]):
                raise RecordRefusedError(Refusal.PART_UNKNOWN, f"{where} holds more than its fields")
            made.append(None)  # keeps the numbers of the messages
        elif message.get("role") == "assistant":
            made.append(assistant_part(message, where))
        else:
            made.append(plain_message(message))
    return Draft(messages=made, system=system, tools=tools or None, settings=settings)


def _read_typed(
    part: dict[str, Any], where: str, settings: dict[str, str | None], system: list[Any], tools: list[Any]
) -> None:
    keys = {key: value for key, value in part.items() if key != "type"}
    if part["type"] == "system_content":
        for name in SETTINGS:
            if name in keys:
                value = keys.pop(name)
                if value is not None and not isinstance(value, str):
                    raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{where}: {name} is {kind(value)}, not text")
                settings[name] = value
        config = keys.pop("channel_config", None)
        if config is not None and set(config.get("valid_channels") or ()) != set(CHANNELS):
            raise RecordRefusedError(Refusal.KEY_UNKNOWN, f"{where}: its channels are not {', '.join(CHANNELS)}")
    else:
        if not says_nothing(text := keys.pop("instructions", None)):
            system.append(text)
        spaces = keys.pop("tools", None)
        for name, space in spaces.items() if isinstance(spaces, dict) else ():
            if name != "functions" or not isinstance(space, dict):
                raise RecordRefusedError(Refusal.TOOLS_INVALID, f"{where}: the tools {name!r} are no functions")
            tools += space.get("tools") or []
    if left := [key for key, value in keys.items() if not says_nothing(value)]:
        raise RecordRefusedError(
            Refusal.KEY_UNKNOWN, f"{where}: its {part['type']} has the key {left[0]!r}, which is not kept", key=left[0]
        )


HARMONY = FormKind(
    name="harmony",
    title="messages of Harmony's own JSON (openai-harmony)",
    meanings=("id", "messages", "system", "tools"),
    recognises=_recognises,
    draft=_draft,
)
