"""Lists of pairs of a question and an answer, and lists of texts in which user and assistant alternate.

In: a record with such a list. Out: its texts as messages.

    {"data": ["Q1", "A1", "Q2", "A2"]}                           UltraChat; LIMA: "conversations"
    {"conversation": [{"human": "Q", "assistant": "A"}, …]}      ms-swift, Firefly
    {"conversation": [{"system": "S", "input": "Q", "output": "A"}, …]}    XTuner
"""

from collections.abc import Mapping
from typing import Any

from spanloom.conversations.forms.form import Draft, FormKind, Taken, listed, objects
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.reading.messages import ROLE_KEYS
from spanloom.conversations.turns import RecordRefusedError, Refusal, kind, says_nothing

QUESTION = ("human", "user", "input", "question", "query", "prompt", "instruction")
ANSWER = ("assistant", "gpt", "bot", "output", "answer", "response")


def _texts(record: Mapping[str, Any], names: KeyMap) -> bool:
    value = names.found("data", record)
    return bool(value) and _alternating(record[value[0]])


def _alternating(value: Any) -> bool:
    value = listed(value) if isinstance(value, list) else value
    return isinstance(value, list) and len(value) > 1 and all(isinstance(text, str) for text in value)


def _draft_texts(taken: Taken) -> Draft:
    texts = taken.one("data")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"the data is {kind(texts)}, not a list of texts")
    roles = ("user", "assistant")
    return Draft(messages=[{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)])


def _pairs(record: Mapping[str, Any], names: KeyMap) -> bool:
    value = names.found("messages", record)
    first = next(objects(record[value[0]]), {}) if value else {}
    return _pair_keys(first) is not None


def _pair_keys(pair: Mapping[str, Any]) -> tuple[str, str] | None:
    if any(key in pair for key in ROLE_KEYS):
        return None
    question_key = next((key for key in QUESTION if key in pair), None)
    answered = next((key for key in ANSWER if key in pair), None)
    return (question_key, answered) if question_key and answered else None


def _draft_pairs(taken: Taken) -> Draft:
    value = listed(taken.one("messages"))
    messages: list[Any] = []
    for number, pair in enumerate(value if isinstance(value, list) else [value]):
        keys = _pair_keys(pair) if isinstance(pair, dict) else None
        if keys is None:
            raise RecordRefusedError(Refusal.NO_MESSAGES, f"pair {number} is no question with an answer")
        rest = {key: text for key, text in pair.items() if key not in keys}
        if not says_nothing(system := rest.pop("system", None)):
            messages.append({"role": "system", "content": system})
        if not says_nothing(pair[keys[0]]):
            messages.append({"role": "user", "content": pair[keys[0]]})
        messages.append({"role": "assistant", "content": pair[keys[1]], **rest})
    return Draft(messages=messages)


ALTERNATING = FormKind(
    name="alternating",
    title="texts of user and assistant in turn (UltraChat, LIMA)",
    meanings=("id", "system", "data"),
    recognises=_texts,
    draft=_draft_texts,
    names={"data": ("data", "conversations", "conversation")},
)

PAIRS = FormKind(
    name="pairs",
    title="a list of questions with their answers",
    meanings=("id", "messages", "system", "tools"),
    recognises=_pairs,
    draft=_draft_pairs,
)
