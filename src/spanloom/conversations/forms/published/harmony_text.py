"""Conversations that are already rendered as Harmony text.

In: a record with such a text, whole or as the answer to a question; and the parser `Reading.rendered`, which uses
openai-harmony. Out: the draft of the messages in the text.

    {"text": "<|start|>user<|message|>Q<|end|><|start|>assistant<|channel|>final<|message|>A<|return|>"}
    {"prompt": "Q", "response": "<|channel|>final<|message|>A<|return|>"}
"""

from collections.abc import Mapping
from typing import Any

from spanloom.conversations.forms.form import Draft, FormKind, Taken, are_messages, listed_or_text
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.forms.published.harmony import draft_of
from spanloom.conversations.turns import RecordRefusedError, Refusal, kind

START, CHANNEL, ASSISTANT = "<|start|>", "<|channel|>", "<|start|>assistant"
NAMES = {"rendered": ("text", "harmony", "rendered", "conversation"), "query": ("prompt", "query", "question")}


def _is_rendered(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip().startswith(START)


def _is_answer(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip().startswith((CHANNEL, ASSISTANT))


def _recognises(record: Mapping[str, Any], names: KeyMap) -> bool:
    whole = names.found("rendered", record)
    if whole and _is_rendered(record[whole[0]]):
        return True
    value = names.found("messages", record)
    if value and any(_answers(message) for message in _list(record[value[0]])):
        return True
    answer = names.found("answer", record)
    return bool(answer and names.found("query", record)) and _is_answer(record[answer[0]])


def _list(value: Any) -> list[Any]:
    value = listed_or_text(value)
    return value if isinstance(value, list) else []


def _answers(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and message.get("role", message.get("from")) in ("assistant", "gpt")
        and _is_answer(message.get("content", message.get("value")))
    )


def _draft(taken: Taken) -> Draft:
    if whole := taken.one("rendered"):
        if not _is_rendered(whole):
            raise RecordRefusedError(Refusal.NO_MESSAGES, f"the text is {kind(whole)} that does not begin with {START}")
        return draft_of(_parsed(whole.strip(), taken))
    values = _list(taken.one("messages"))
    if not values:
        question, answer = listed_or_text(taken.one("query")), taken.one("answer")
        if question is None or answer is None:
            raise RecordRefusedError(Refusal.NO_MESSAGES, "the record holds no text of Harmony")
        if _is_rendered(question) and _is_answer(answer):
            return draft_of(_parsed(question.strip() + answer.strip(), taken))
        prompt = question if are_messages(question) else [{"role": "user", "content": question}]
        values = [*prompt, {"role": "assistant", "content": answer}]
    made: list[Any] = []
    for message in values:
        made += _answer(message, taken) if _answers(message) else [message]
    drafted = draft_of([message for message in made if not _is_system(message)])
    return Draft(
        messages=[*filter(_is_system, made), *drafted.messages],
        system=drafted.system,
        tools=drafted.tools,
        settings=drafted.settings,
    )


def _is_system(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role", message.get("from")) in ("system", "developer")


def _answer(message: dict[str, Any], taken: Taken) -> list[dict[str, Any]]:
    text = str(message.get("content", message.get("value"))).strip()
    return _parsed(text if text.startswith(ASSISTANT) else ASSISTANT + text, taken)


def _parsed(text: str, taken: Taken) -> list[dict[str, Any]]:
    assert taken.reading.rendered is not None, "what reads this form brings the parser"
    return taken.reading.rendered(text)


HARMONY_TEXT = FormKind(
    name="harmony_text",
    title="rendered text of Harmony",
    how="`<\\|start\\|>…<\\|message\\|>…` whole under `text`, or an answer that begins with `<\\|channel\\|>`; "
    "parsed by openai-harmony, and taken where it renders to the same text again",
    peers="openai-harmony, outputs of gpt-oss",
    meanings=("id", "rendered", "messages", "query", "answer", "system", "tools"),
    recognises=_recognises,
    draft=_draft,
    names=NAMES,
)
