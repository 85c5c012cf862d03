"""Conversations that are already rendered as Harmony text.

In: a record with such a text, whole or as a prompt and its answer; and the parser `Reading.rendered`, which uses
openai-harmony. Out: the draft of the messages in the text. Records of the same file without such a text are read as
messages, or as a question and its answer.

    {"text": "<|start|>user<|message|>Q<|end|><|start|>assistant<|channel|>final<|message|>A<|return|>"}
    {"prompt": "<|start|>user<|message|>Q<|end|>", "response": "<|channel|>final<|message|>A<|return|>"}

An answer alone may be such a text in any form: `spanloom.conversations.reading.harmony`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spanloom.conversations.forms import columns
from spanloom.conversations.forms.form import Draft, FormKind, Taken
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.forms.message_lists import messages
from spanloom.conversations.forms.published.harmony import draft_of
from spanloom.conversations.reading.harmony import ASSISTANT, START, is_rendered_answer, whole_text
from spanloom.conversations.turns import RENDERED, RecordRefusedError, Refusal, kind

NAMES = {"rendered": ("text", "harmony", "rendered", "conversation"), "query": ("prompt", "query", "question")}


def _is_rendered(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip().startswith(START)


def _recognises(record: Mapping[str, Any], names: KeyMap) -> bool:
    whole = names.found("rendered", record)
    if whole and _is_rendered(record[whole[0]]):
        return True
    query, answer = names.found("query", record), names.found("answer", record)
    return bool(query and answer) and _is_rendered(record[query[0]]) and is_rendered_answer(record[answer[0]])


def _draft(taken: Taken) -> Draft:
    whole = taken.one("rendered")
    if _is_rendered(whole):
        return draft_of(_parsed(whole_text(whole), taken))
    if isinstance(whole, list):  # `conversation` is also a name of a list of messages
        taken = replace(taken, values={**taken.values, "messages": [whole]})
    elif whole is not None:
        taken.left[taken.keys["rendered"][0]] = whole
    if taken.values["messages"]:
        return Draft(messages=messages(taken))
    question, answer = taken.one("query"), taken.one("answer")
    if question is None or answer is None:
        what = "no text" if whole is None else f"{kind(whole)} that does not begin with {START}"
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"the record holds {what}, and no messages")
    if _is_rendered(question) and is_rendered_answer(answer) and not taken.reading.text_as_is:
        asked, answered = question.strip(), whole_text(answer)
        begins = "" if answered.startswith(ASSISTANT) or asked.endswith(ASSISTANT) else ASSISTANT
        return draft_of(_parsed(asked + begins + answered, taken))
    return columns.draft_of_columns(taken)


def _parsed(text: str, taken: Taken) -> list[dict[str, Any]]:
    if taken.reading.rendered is None:
        detail = "the record is rendered text of Harmony, which only `spanloom convert` and builds for gpt-oss parse"
        raise RecordRefusedError(Refusal.MARKUP_UNCLEAR, detail, "give it as messages with reasoning_content")
    messages = taken.reading.rendered(text)
    taken.dropping.note(RENDERED)
    return messages


HARMONY_TEXT = FormKind(
    name="harmony_text",
    title="rendered text of Harmony",
    meanings=("id", "rendered", "messages", *columns.MEANINGS[1:]),
    recognises=_recognises,
    draft=_draft,
    names=NAMES,
)
