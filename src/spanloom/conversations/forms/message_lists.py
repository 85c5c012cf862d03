"""Lists of messages with role and content (OpenAI), or with from and value (ShareGPT).

In: a record whose messages are under `messages`, `conversations`, …, also as JSON text. Out: these messages.
`spanloom.conversations.reading.messages` reads their content: parts, calls, blocks of Anthropic.
"""

from collections.abc import Mapping
from typing import Any

from spanloom.conversations.forms.form import Draft, FormKind, Taken, listed, reasoned
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.reading.messages import REASONING_KEYS, ROLE_KEYS, ROLES
from spanloom.conversations.turns import RecordRefusedError, Refusal, kind, says_nothing


def messages(taken: Taken) -> list[Any]:
    """The list of messages of a record. Raises RecordRefusedError if it has none."""
    values = listed(taken.one("messages"))
    if not isinstance(values, list):
        names = ", ".join(taken.names.names["messages"])
        fault = f"must be a list, not {kind(values)}" if taken.values["messages"] else "is missing or empty"
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"the list of messages (one of {names}) {fault}")
    return values


def _draft(taken: Taken) -> Draft:
    values = messages(taken)
    return Draft(messages=_with_reasoning(values, taken) if taken.values["reasoning"] else values)


def _with_reasoning(values: list[Any], taken: Taken) -> list[Any]:
    """The messages with the reasoning that `--map reasoning=KEY` names, in the last answer.

    Raises RecordRefusedError if the last message is no answer, or has a reasoning of its own.
    """
    last = values[-1] if values else None
    reasoning = reasoned(taken)
    role = last.get(next((key for key in ROLE_KEYS if key in last), ""), "") if isinstance(last, dict) else ""
    if not isinstance(last, dict) or ROLES.get(str(role).strip().lower()) != "assistant":
        raise RecordRefusedError(Refusal.REASONING_TWICE, "the last message is not the assistant's: nothing reasons")
    if own := [key for key in REASONING_KEYS if not says_nothing(last.get(key))]:
        raise RecordRefusedError(Refusal.REASONING_TWICE, f"the last answer has a reasoning of its own, {own[0]!r}")
    return [*values[:-1], {**last, "reasoning_content": reasoning}]


def _list(record: Mapping[str, Any], names: KeyMap) -> Any:
    listing = names.found("messages", record)
    return listed(record[listing[0]]) if listing else None


def _is_sharegpt(record: Mapping[str, Any], names: KeyMap) -> bool:
    values = _list(record, names)
    first = values[0] if isinstance(values, list) and values else None
    return isinstance(first, dict) and next((key for key in ROLE_KEYS if key in first), None) == "from"


MEANINGS = ("id", "messages", "system", "tools", "reasoning")
NAMES: dict[str, tuple[str, ...]] = {"reasoning": ()}
"""A key beside the messages is their reasoning only where `--map` says so."""

SHAREGPT = FormKind(
    name="sharegpt",
    title="messages with from and value (ShareGPT)",
    meanings=MEANINGS,
    recognises=_is_sharegpt,
    draft=_draft,
    names=NAMES,
)

OPENAI = FormKind(
    name="openai_messages",
    title="messages with role and content (OpenAI)",
    meanings=MEANINGS,
    recognises=lambda record, names: isinstance(_list(record, names), list),
    draft=_draft,
    names=NAMES,
)
