"""What helps where a record has no known form: the options that name its keys, as far as these can be guessed.

In: the first record. Out: a remedy for the error. Nothing is decided here: who types the option decides.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from spanloom.conversations.forms.form import are_messages, listed
from spanloom.conversations.markup import TEMPLATE_MARKS
from spanloom.conversations.turns import RecordRefusedError, says_nothing

SHAPES = (
    '{"messages": [{"role": "user", "content": "…"}, …]}, {"conversations": [{"from": "human", "value": "…"}, …]} or '
    '{"prompt": "…", "response": "…"}'
)
TEXTS = ("text", "content", "document", "body", "raw_content")
"""What data sets call plain text, which is no conversation."""
PLAIN_TEXT = "plain text without a question is trained as packed chat (`spanloom chat`, docs/families/chat.md)"
QUESTIONS = (
    "prompt", "query", "question", "instruction", "problem", "input", "inputs", "input_text", "text_input", "message",
    "user", "human", "task",
)  # fmt: skip
ANSWERS = (
    "response", "completion", "output", "solution", "generated_solution", "attempt", "deepseek_attempt", "answer",
    "output_text", "target", "targets", "correct_answer", "reply", "assistant", "chosen",
)  # fmt: skip
REASONINGS = ("reasoning", "reasoning_content", "thinking", "complex_cot", "cot", "deepseek_thinking_trajectory")
"""What data sets call these, in small letters; the likeliest first."""


def remedy(record: Any) -> str:
    """What a person may do about a record of no known form."""
    if not isinstance(record, dict):
        return _shapes(record)
    if wrapped := next((key for key, value in record.items() if _holds_records(value)), None):
        return f"the records are in a list under {wrapped!r}: jq -c '.{wrapped}[]' FILE > records.jsonl takes them out"
    if {"role", "text"} <= record.keys() and "parent_id" in record:
        return "each record is one message of a tree: write one record for each path through it"
    query, answer, reasoning = (_key(names, record) for names in (QUESTIONS, ANSWERS, REASONINGS))
    if query and answer:
        return f"--map query={query},answer={answer}" + (f",reasoning={reasoning}" if reasoning else "")
    if dialogues := [key for key, value in record.items() if _holds_messages(value)]:
        return f"--map messages={dialogues[0]}"
    if len(record) == 1 and any(sign in next(iter(record)) for sign in (";", "\t", "|")):
        return "a .csv file has commas between its columns, a .tsv file has tabs"
    return _shapes(record)


def _shapes(record: Any) -> str:
    shapes = (
        f"give records such as {SHAPES}; --map query=KEY,answer=KEY or --map messages=KEY says which key means what"
    )
    texts = [record] if isinstance(record, str) else []
    texts += [record[key] for key in TEXTS if isinstance(record.get(key), str)] if isinstance(record, dict) else []
    if marks := [mark for mark in TEMPLATE_MARKS for text in texts if mark in text]:
        return f"{shapes}; the text holds {marks[0]}: give the messages that a chat template rendered to it"
    return f"{shapes}; {PLAIN_TEXT}" if texts else shapes


def _holds_records(value: Any) -> bool:
    """A list of objects that hold lists of messages, or a question."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) for item in value)
        and not are_messages(value)
        and (
            any(map(_holds_messages, value[0].values())) or bool(_key(QUESTIONS, value[0]) and _key(ANSWERS, value[0]))
        )
    )


def _holds_messages(value: Any) -> bool:
    try:
        return not says_nothing(value) and are_messages(listed(value))
    except RecordRefusedError:
        return False


def _key(names: Iterable[str], record: Mapping[str, Any]) -> str | None:
    """The first key of the record that has one of the names, with a text."""
    small = {key.lower(): key for key, value in record.items() if isinstance(value, str) and value.strip()}
    return next((small[name] for name in names if name in small), None)
