"""Lists of messages with role and content (OpenAI), or with from and value (ShareGPT).

In: a record whose messages are under `messages`, `conversations`, …, also as JSON text. Out: these messages.
`spanloom.conversations.messages` reads their content: parts, calls, blocks of Anthropic.
"""

from collections.abc import Mapping
from typing import Any

from spanloom.conversations.forms.form import Draft, FormKind, Taken, listed
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.messages import ROLE_KEYS
from spanloom.conversations.turns import RecordRefusedError, Refusal, kind


def messages(taken: Taken) -> list[Any]:
    """The list of messages of a record. Raises RecordRefusedError if it has none."""
    values = listed(taken.one("messages"))
    if not isinstance(values, list):
        names = ", ".join(taken.names.names["messages"])
        fault = f"must be a list, not {kind(values)}" if taken.values["messages"] else "is missing or empty"
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"the list of messages (one of {names}) {fault}")
    return values


def _draft(taken: Taken) -> Draft:
    return Draft(messages=messages(taken))


def _list(record: Mapping[str, Any], names: KeyMap) -> Any:
    listing = names.found("messages", record)
    return listed(record[listing[0]]) if listing else None


def _is_sharegpt(record: Mapping[str, Any], names: KeyMap) -> bool:
    values = _list(record, names)
    first = values[0] if isinstance(values, list) and values else None
    return isinstance(first, dict) and next((key for key in ROLE_KEYS if key in first), None) == "from"


MEANINGS = ("id", "messages", "system", "tools")

SHAREGPT = FormKind(
    name="sharegpt",
    title="messages with from and value (ShareGPT)",
    how='`{"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}]}`; turns `function_call` '
    "and `observation`",
    peers="Axolotl, LLaMA-Factory, ms-swift, Unsloth",
    meanings=MEANINGS,
    recognises=_is_sharegpt,
    draft=_draft,
)

OPENAI = FormKind(
    name="openai_messages",
    title="messages with role and content (OpenAI)",
    how='`{"messages": [{"role": "user", "content": …}, …]}`, or such a list by itself; blocks of Anthropic and of '
    "Bedrock's Converse, parts of LLaMA-Factory v1, turns of WildChat, LMSYS, UltraChat 200k, Nemotron, SWE-smith too",
    peers="OpenAI fine-tuning, TRL, Axolotl, LLaMA-Factory, ms-swift, Anthropic Messages, Amazon Bedrock",
    meanings=MEANINGS,
    recognises=lambda record, names: isinstance(_list(record, names), list),
    draft=_draft,
)
