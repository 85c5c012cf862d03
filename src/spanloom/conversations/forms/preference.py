"""A chosen answer and a rejected one: the chosen answer is trained, the rejected one is counted and left out.

In: a record of TRL, LLaMA-Factory, ms-swift, OpenAI, UltraFeedback or HH-RLHF. Out: its question and the chosen answer
as messages.

    prompt, chosen, rejected                   text, or lists of messages; `chosen` may hold the whole conversation
    conversations, chosen, rejected            turns, and the answer as an object (LLaMA-Factory)
    messages, rejected_response                the conversation with the chosen answer (ms-swift)
    input, preferred_output, non_preferred_output   OpenAI
    question, response_j, response_k           StackExchange paired (TRL, torchtune)
    chosen, rejected                           texts with "Human:" and "Assistant:" (HH-RLHF)
"""

from collections.abc import Mapping
from typing import Any

from spanloom.conversations.forms import columns
from spanloom.conversations.forms.form import (
    Draft,
    FormKind,
    Taken,
    exchange,
    joined,
    listed,
    listed_or_text,
    transcript,
)
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.reading.messages import ROLE_KEYS, ROLES, TEXT_KEYS
from spanloom.conversations.turns import RecordRefusedError, Refusal, kind, says_nothing
from spanloom.records.scalars import truth

REJECTED = "rejected"

NAMES = {
    "chosen": ("chosen", "chosen_response", "chosen_messages", "preferred_output", "response_j", "response"),
    "rejected": ("rejected", "rejected_response", "rejected_messages", "non_preferred_output", "response_k"),
    "dialogue": ("conversations", "conversation", "messages", "turns"),
    "query": ("prompt", "query", "question", "instruction+input", "input"),
}


def _recognises(record: Mapping[str, Any], names: KeyMap) -> bool:
    rejected = names.found("rejected", record)
    if not rejected or truth(record[rejected[0]]) is not None:  # a verdict on the record, not an answer
        return False
    return bool(names.found("chosen", record) or names.found("dialogue", record))


def _draft(taken: Taken) -> Draft:
    for rejected in taken.values["rejected"]:
        taken.dropping.count(REJECTED, rejected)
    if not taken.values["chosen"]:
        if not taken.values["rejected"] or not taken.values["dialogue"]:
            raise RecordRefusedError(Refusal.NO_MESSAGES, "the record has no chosen answer")
        return Draft(messages=_messages(listed(taken.one("dialogue")), "the conversation"))
    chosen = listed_or_text(taken.one("chosen"))
    chosen = [chosen] if isinstance(chosen, dict) else chosen
    if isinstance(chosen, list) and any(_role(message) == "user" for message in chosen):
        return _whole(chosen, taken)
    if not isinstance(chosen, str | list):
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"the chosen answer is {kind(chosen)}, not text or messages")
    answer = chosen if isinstance(chosen, list) else [{"role": "assistant", "content": chosen}]
    if not taken.values["query"]:
        if taken.values["dialogue"]:
            return Draft(messages=[*_messages(listed(taken.one("dialogue")), "the conversation"), *answer])
        if isinstance(chosen, str):
            return Draft(messages=list(_transcript(chosen, taken)))
        raise RecordRefusedError(Refusal.NO_MESSAGES, "the record has no question", _asked(taken))
    if isinstance(query := taken.one("query"), dict):  # OpenAI's: the request
        request = dict(query)
        messages, tools = request.pop("messages", None), request.pop("tools", None)
        taken.left[taken.keys["query"][0]] = request
        return Draft(messages=[*_messages(messages, "the input"), *answer], tools=tools)
    columns.refuse_beside(taken)
    question = [listed_or_text(value) for value in taken.values["query"]]
    if len(question) == 1 and isinstance(question[0], list):
        return Draft(messages=[*columns.earlier(taken), *question[0], *answer])
    _keep(taken, "dialogue")
    asked = joined(question)
    messages = exchange(asked, taken, chosen) if isinstance(chosen, str) else [*exchange(asked, taken), *answer]
    return Draft(messages=[*columns.earlier(taken), *messages])


def _whole(chosen: list[Any], taken: Taken) -> Draft:
    """The chosen conversation with its question, which another key may repeat."""
    texts = [_text(message) for message in chosen]
    for value in taken.values["query"]:
        prompt = listed_or_text(value)
        repeated = [_text(message) for message in prompt] if isinstance(prompt, list) else [prompt]
        if any(text not in texts for text in repeated):
            key = taken.keys["query"][0]
            raise RecordRefusedError(
                Refusal.INPUT_BESIDE,
                f"{key!r} beside the chosen conversation is no message of it",
                f"--metadata {key} leaves it out",
            )
    _keep(taken, "query")
    _keep(taken, "dialogue")
    return Draft(messages=chosen)


def _keep(taken: Taken, meaning: str) -> None:
    """Makes keys that the form does not need metadata."""
    taken.left.update(zip(taken.keys[meaning], taken.values[meaning], strict=True))


def _messages(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"{where} is {kind(value)}, not a list of messages")
    return list(value)


def _role(message: Any) -> Any:
    value = next((message[key] for key in ROLE_KEYS if key in message), None) if isinstance(message, dict) else None
    return ROLES.get(value.strip().lower()) if isinstance(value, str) else None


def _text(message: Any) -> Any:
    return next((message[key] for key in TEXT_KEYS if key in message), None) if isinstance(message, dict) else None


def _asked(taken: Taken) -> str | None:
    """The option for a question whose key other data sets use for a text next to it."""
    key = next((key for key in taken.left if columns.looks_like_input(key) and not says_nothing(taken.left[key])), None)
    return f"--map query={key}" if key else None


def _transcript(text: str, taken: Taken) -> list[dict[str, str]]:
    if (messages := transcript(text, taken.reading)) is None:
        raise RecordRefusedError(
            Refusal.NO_MESSAGES,
            "the record has no question, and the chosen answer is no transcript of Human and Assistant",
            _asked(taken),
        )
    return messages


PREFERENCE = FormKind(
    name="preference",
    title="a chosen answer and a rejected one: the chosen is trained, the rejected is counted",
    meanings=("id", "system", "history", "dialogue", "query", "chosen", "rejected", "tools"),
    recognises=_recognises,
    draft=_draft,
    names=NAMES,
)
