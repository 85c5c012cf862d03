"""A question and an answer in columns, each a text or a list of messages (as in TRL).

In: a record whose keys `KeyMap` knows or `--map` names; optionally reasoning, a system text, and earlier turns
(`history` of Alpaca and ms-swift). Out: these as messages.

    {"instruction": "I", "input": "J", "output": "A"}          user "I\n\nJ", assistant "A"
    {"query": "Q2", "response": "A2", "history": [["Q1", "A1"]]}    user Q1, assistant A1, user Q2, assistant A2
    {"question": "Q", "context": "C", "answer": "A"}           refused: C may belong to the question
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spanloom.conversations.forms.beside import looks_like_reasoning
from spanloom.conversations.forms.beside_messages import FIRST_REPLIES, first_reply, spoken_reply
from spanloom.conversations.forms.form import (
    Draft,
    FormKind,
    Taken,
    are_messages,
    exchange,
    is_one_text,
    joined,
    jq_path,
    listed,
    listed_or_text,
    number_as_text,
    reasoned,
    written_json,
    written_object,
)
from spanloom.conversations.forms.keys import KNOWN_NAMES, KeyMap
from spanloom.conversations.reading.flags import ENDS
from spanloom.conversations.reading.messages import ROLE_KEYS, ROLES
from spanloom.conversations.turns import RecordRefusedError, Refusal, kind, says_nothing

_NOUNS = frozenset({
    "context", "contexts", "ctx", "passage", "passages", "document", "documents", "doc", "docs", "knowledge",
    "background", "article", "paragraph", "evidence", "facts", "story", "options", "choices", "schema", "table",
    "premise", "hypothesis", "dialogue", "transcript", "abstract", "hint", "hints",
})  # fmt: skip
LIKE_INPUT = _NOUNS | {
    "input", "inputs", "instruction", "prompt", "query", "question", "reference_text", "source_text", "retrieved",
    "search_results", "support", "definition", "task_definition",
}  # fmt: skip
"""Names of columns whose text a question is about. As metadata, the question would be trained without it. Nouns may
also end a longer name: `sql_context`, `passage_2`."""
LIKE_ANSWER = frozenset({
    "solution", "solutions", "rationale", "rationales", "explanation", "cot", "chain_of_thought", "complex_cot",
    "generated_solution", "corrected", "sql",
})  # fmt: skip
"""Names of columns with a text that leads to the answer, or a longer answer: `answer` may be only its final number."""
_TRUTH = re.compile(
    r"(ground|gold(en)?|reference|expected|correct(ed)?|revised|edited|improved|right|raw|full|true)"
    r"_?(truth|answer|output|response|completion|solution|target)|target|truth|gold|ideal|expected"
)
"""Names of columns with the text that an answer is compared with, in lower case: the answer may be a model's try."""
NO_INPUT = "<noinput>"
"""Self-Instruct's text for an instruction without input."""


PARENT = "parent_id"
"""The key that names the record of the turn before (H2O LLM Studio)."""
_CHOICE = re.compile(r"(opt|option|choice|alternative)[_ #-]?([a-h]|\d+)|op[a-e]|[a-e]")
_FIRST_CHOICES = frozenset({"a", "b"})
SEVERAL_ANSWERS = frozenset({"generations", "responses", "completions", "outputs", "rollouts", "samples", "candidates"})
"""Names of columns with several answers, in lower case; the text beside them is the truth they are compared with."""


def looks_like_input(key: str) -> bool:
    key = key.lower()
    return key in LIKE_INPUT or re.sub(r"_?\d+$", "", key).rpartition("_")[2] in _NOUNS


def _is_choice(key: str, record: Mapping[str, Any]) -> bool:
    """Whether a column is one of several choices: `option_a`, `choice1`, `opa`; `A` beside `B`."""
    name = key.lower()
    if not _CHOICE.fullmatch(name):
        return False
    return len(name) > 1 or {other.lower() for other in record} >= _FIRST_CHOICES


def _is_code(key: str, value: Any, answers: Sequence[Any]) -> bool:
    """Whether a column holds code that the answer lacks: `code`, `starter_code`. A code without spaces is a name."""
    name = re.sub(r"_?\d+$", "", key.lower()).rpartition("_")[2]
    if name not in ("code", "snippet") or not isinstance(value, str) or not re.search(r"\s", value.strip()):
        return False
    return not any(isinstance(answer, str) and value.strip() in answer for answer in answers)


def beside(record: Mapping[str, Any], taken: Mapping[str, tuple[str, ...]], names: KeyMap) -> str | None:
    """The first unused key that looks like input of the question. None if there is none, or if the question already
    contains its text."""
    used = {key for keys in taken.values() for key in keys}
    queries = [record[key] for key in taken.get("query", ()) if isinstance(record[key], str)]
    answers = [record[key] for key in taken.get("answer", ()) if key in record]
    for key, value in record.items():
        if key in used or key in names.metadata or says_nothing(value) or not isinstance(value, str | list | dict):
            continue
        if not (looks_like_input(key) or _is_choice(key, record) or _is_code(key, value, answers)):
            continue
        if not (isinstance(value, str) and (not value.strip() or any(value.strip() in text for text in queries))):
            return key
    return None


def _remedy(key: str, left: Mapping[str, Any], query: tuple[str, ...]) -> str:
    """The options that decide the meaning of a key next to the question; of all choices, if it is one of them."""
    keys = [other for other in left if _is_choice(other, left)] if _is_choice(key, left) else [key]
    it = "them" if len(keys) > 1 else "it"
    metadata = f"--metadata {','.join(keys)} leaves {it} out of the question"
    if not all(isinstance(left[name], str) for name in keys) or not query:
        return metadata
    return f"--map query={'+'.join((*query, *keys))} appends {it} to the question, {metadata}"


def draft(taken: Taken) -> Draft:
    """A question and an answer as messages. Raises RecordRefusedError."""
    refuse_beside(taken)
    request = taken.one("query")
    request = request if isinstance(request, dict) else written_object(request)
    if "messages" in request and are_messages(listed(request["messages"])):
        rest = dict(request)
        asked, tools = rest.pop("messages"), rest.pop("tools", None)
        if not says_nothing(rest):
            taken.left[taken.keys["query"][0]] = rest
        taken = replace(taken, values={**taken.values, "query": [asked]})
        return Draft(messages=[*earlier(taken), *spoken(taken)], tools=tools)
    return Draft(messages=[*earlier(taken), *spoken(taken)])


def draft_of_columns(taken: Taken) -> Draft:
    """The same, for columns that belong to no known data set: another text may be the real answer."""
    answer = taken.one("answer")
    if not says_nothing(taken.left.get(PARENT)) and PARENT not in taken.names.metadata:
        raise RecordRefusedError(
            Refusal.INPUT_BESIDE,
            f"{PARENT!r} says that the record goes on from another one, which would be missing",
            f"write one record for each path through them, --metadata {PARENT} trains each by itself",
        )
    for key, value in taken.left.items():
        if not isinstance(answer, str) or "answer" in taken.names.mapped or key in taken.names.metadata:
            continue
        another = key in KNOWN_NAMES["answer"]
        if key.lower() in SEVERAL_ANSWERS and isinstance(value, list) and value:
            raise RecordRefusedError(
                Refusal.ANSWER_BESIDE,
                f"{key!r} beside the answer {taken.keys['answer'][0]!r} holds {len(value)} answers, and may be "
                "the truth that they are compared with",
                f"--metadata {key} leaves them out",
            )
        if taken.values["reasoning"] and not another:
            continue
        compared = _TRUTH.fullmatch(key.lower().replace("-", "_")) is not None
        if not (another or compared or key.lower() in LIKE_ANSWER or looks_like_reasoning(key, value)):
            continue
        if not _adds(key, value, answer):
            continue
        name = taken.keys["answer"][0]
        raise RecordRefusedError(
            Refusal.ANSWER_BESIDE,
            f"{key!r} beside the answer {name!r} "
            + (
                "is another one"
                if another
                else "may be the truth that it is compared with, or a fuller answer"
                if compared
                else "looks like a fuller answer, or what leads to it"
            ),
            f"--map answer={key} trains it in place of {name}, "
            + ("" if another or compared or not is_one_text(value) else f"--map reasoning={key} reads it as analysis, ")
            + f"--metadata {key} leaves it out",
        )
    return draft(taken)


def _adds(key: str, value: Any, answer: str) -> bool:
    """Whether a column holds a text that the answer lacks; messages, beside which the answer may be the truth to
    compare with; or a list of thoughts."""
    if isinstance(value, str):
        return bool(value.strip()) and value.strip() not in answer
    return looks_like_reasoning(key, value) or (bool(value) and are_messages(listed_or_text(value)))


def refuse_beside(taken: Taken) -> None:
    """Raises RecordRefusedError if an unused key looks like a part of the question."""
    queries = dict(zip(taken.keys["query"], taken.values["query"], strict=True))
    answers = dict(zip(taken.keys.get("answer", ()), taken.values.get("answer", ()), strict=True))
    if key := beside({**taken.left, **queries, **answers}, taken.keys, taken.names):
        raise RecordRefusedError(
            Refusal.INPUT_BESIDE,
            f"{key!r} beside question and answer looks like a part of the question",
            _remedy(key, taken.left, taken.keys["query"]),
        )
    for key, value in taken.left.items() if queries else ():
        if isinstance(value, list | dict) and key not in taken.names.metadata and value and (inner := _asked(value)):
            raise RecordRefusedError(
                Refusal.INPUT_BESIDE,
                f"{key!r} beside question and answer holds messages ({inner}) that may be the question",
                f"--metadata {key} leaves them out of it",
            )


def _asked(value: Any) -> str | None:
    """The messages in a value, at least one of them a user message; None if it holds no messages."""
    for name, held in value.items() if isinstance(value, dict) else [("a list", value)]:
        if isinstance(held, list) and held and are_messages(held):
            said = [message.get(key) for message in held for key in ROLE_KEYS]
            if any(isinstance(role, str) and ROLES.get(role.strip().lower()) == "user" for role in said):
                return str(name)
    return None


def spoken(taken: Taken) -> list[Any]:
    """The messages of the question and of the answer, with its reasoning."""
    question, answer = _said(taken, "query"), _said(taken, "answer")
    if isinstance(question, str) and isinstance(answer, str):
        messages = exchange(question, taken, answer)
    else:
        messages = exchange(question, taken) if isinstance(question, str) else question
        messages = [*messages, *([{"role": "assistant", "content": answer}] if isinstance(answer, str) else answer)]
    stated = str(taken.one("reasoning")).strip().lower()
    if stated in EFFORTS:
        key = taken.keys["reasoning"][0]
        remedy = f"--map effort={key} makes a setting of it, --metadata {key} leaves it out"
        raise RecordRefusedError(Refusal.SETTING_INVALID, f"{key!r} is {stated!r}, which is no reasoning", remedy)
    if stated in ("on", "off", "true", "false"):  # says whether there is reasoning; not the reasoning itself
        taken.left[taken.keys["reasoning"][0]] = taken.values["reasoning"][0]
        return messages
    if not taken.values["reasoning"]:
        return messages
    last = messages[-1]
    if not isinstance(last, dict) or "reasoning" in last or not isinstance(taken.values["answer"][0], str):
        raise RecordRefusedError(Refusal.REASONING_TWICE, "the reasoning does not belong to a single answer")
    return [*messages[:-1], {**last, "reasoning": reasoned(taken)}]


def _said(taken: Taken, meaning: str) -> Any:
    """The text or the messages of a question or an answer. Raises RecordRefusedError."""
    parts = [listed_or_text(value) for value in taken.values[meaning] if value != NO_INPUT]
    if not parts:
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"the record has no {meaning}")
    first = [parts[0]] if isinstance(parts[0], dict) and not parts[0].keys().isdisjoint(ROLE_KEYS) else parts[0]
    if len(parts) == 1 and isinstance(first, list) and all(isinstance(item, dict) for item in first):
        return first
    for key, value in zip(taken.keys[meaning], taken.values[meaning], strict=True):
        if not taken.reading.text_as_is and isinstance(value, str) and (held := _logged(value)):
            detail = f"{key!r} is the JSON of {held}, as a log of a program has it: it would be read as text"
            raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, detail, "--text-as-is keeps it as text")
    if wrong := [kind(value) for value in parts if not isinstance(value, str)]:
        detail = f"{' + '.join(taken.keys[meaning])} is {wrong[0]}, not text or a list of messages"
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, detail, _as_text(taken, meaning))
    return joined(parts)


def _as_text(taken: Taken, meaning: str) -> str | None:
    """The remedy for a question or an answer that is no text."""
    key = next(key for key, value in zip(taken.keys[meaning], taken.values[meaning], strict=True) if not _text(value))
    value, path = taken.values[meaning][taken.keys[meaning].index(key)], jq_path(key)
    if isinstance(value, bool | int | float):
        return number_as_text(path)
    if isinstance(value, dict) and _text(value.get("chosen")) and _text(value.get("rejected")):
        return f"jq -c '. + {path} | del({path})' FILE > records.jsonl takes the chosen and the rejected answer out"
    for name, reply in FIRST_REPLIES.items() if isinstance(value, dict) and meaning == "answer" else ():
        if first_reply(value.get(name), name):
            return f"jq -c '{path} |= [.{name}[0] | {reply}]' FILE > records.jsonl takes its first choice"
    if meaning == "answer" and spoken_reply(value):
        return f"jq -c '{path} |= [{{role: \"assistant\"}} + .]' FILE > records.jsonl makes a message of it"
    names, columns = (
        [*map(jq_path, taken.keys["query"]), *map(jq_path, taken.keys["answer"])],
        [*taken.values["query"], *taken.values["answer"]],
    )
    if not all(map(_are_rows, columns)) or len({len(column) for column in columns}) > 1:
        return None
    rows = f"([{', '.join(names)}] | transpose"
    many = " | ".join(f"{name} = $at[{number}]" for number, name in enumerate(names))
    each = f"jq -c '. as $all | {rows}[]) as $at | $all | {many}' FILE > records.jsonl"
    if len(columns) > 2 or not all(isinstance(column[0], str) for column in columns):
        return f"{each} makes a record of each"
    turn = '{role: "user", content: .[0]}, {role: "assistant", content: .[1]}'
    return (
        f"if they are the turns of one conversation, jq -c '. + {{messages: {rows} | map({turn}))}} | "
        f"del({names[0]}, {names[1]})' FILE > records.jsonl; if they are columns of many, {each}"
    )


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _are_rows(value: Any) -> bool:
    """Whether a value is a list of texts, or of lists of messages."""
    return isinstance(value, list) and bool(value) and (all(map(_text, value)) or all(map(_are_said, value)))


def _are_said(value: Any) -> bool:
    return bool(value) and are_messages(value)


_ENDS = frozenset(ENDS)


def _logged(text: str) -> str | None:
    """What a text is the JSON of, if a program logged it: messages, a reply, calls. None for any other text."""
    value = written_json(text)
    while isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict):
            return None
        if "lc" in item and item.get("type") == "constructor":
            return "LangChain's objects"
        if "toolCallId" in item and "toolName" in item:
            return "calls"
        for name in ("messages", "contents"):
            if isinstance(held := item.get(name), list) and held and isinstance(held[0], dict | list):
                return "an object with messages"
        if isinstance(reply := item.get("content"), dict) and "parts" in reply:
            return "a reply"
        if not _ENDS.isdisjoint(item) or any(first_reply(item.get(name), name) for name in FIRST_REPLIES):
            return "a reply"
    return None


def earlier(taken: Taken) -> list[Any]:
    """The turns of `history`, which holds pairs of question and answer, or messages. Raises RecordRefusedError."""
    if not taken.values.get("history"):
        return []
    history = listed_or_text(taken.one("history"))
    if isinstance(history, str) and history.lstrip().startswith("["):
        history = listed(history)
    if are_messages(history):
        return list(history)
    messages: list[Any] = []
    for pair in history if isinstance(history, list) else [None]:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
            key = taken.keys["history"][0]
            detail = f"{key!r} is no list of pairs of a question and an answer"
            raise RecordRefusedError(Refusal.INPUT_BESIDE, detail, f"--metadata {key} leaves it out")
        messages += [{"role": "user", "content": pair[0]}, {"role": "assistant", "content": pair[1]}]
    return messages


EFFORTS = ("minimal", "low", "medium", "high")

MEANINGS = ("id", "system", "history", "query", "reasoning", "answer", "tools")

COLUMNS = FormKind(
    name="columns",
    title="a prompt and its answer",
    meanings=MEANINGS,
    recognises=lambda record, names: bool(names.found("query", record) and names.found("answer", record)),
    draft=draft_of_columns,
)
