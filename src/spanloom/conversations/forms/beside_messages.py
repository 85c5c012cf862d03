"""Refuses what comes beside messages and would be lost as metadata: a text that they are about, a system text,
reasoning, calls, a question, an answer.

In: the messages of a record, and the keys that its form does not use. Out: a refusal that names the options that
decide, or nothing.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from spanloom.conversations.forms.beside import held_texts, looks_like_reasoning, parsed_or_none
from spanloom.conversations.forms.keys import KNOWN_NAMES, KeyMap
from spanloom.conversations.reading.markup import template_mark
from spanloom.conversations.reading.messages import REASONING_KEYS, ROLE_KEYS, ROLES, TEXT_KEYS
from spanloom.conversations.turns import RecordRefusedError, Refusal, says_nothing

_SHOWN = re.compile(r"(^|_)(contexts?|documents?|passages?)(_?\d+)?$")
"""Names of texts that messages are about, in lower case."""


@lru_cache(maxsize=1024)
def _is_shown(key: str) -> bool:
    return _SHOWN.search(key.lower()) is not None


_SYSTEM = re.compile(r"(system|sys|developer)_?(prompts?|messages?|instructions?|texts?)|preamble|instructions")
"""Names of columns that may be a system text, in lower case."""


def refuse_system_beside(keys: Mapping[str, Any], names: KeyMap, messages: Sequence[Any]) -> None:
    """Raises RecordRefusedError for a text under a key that is not known and looks like the system text."""
    for key, value in keys.items():
        if not isinstance(value, str) or not _is_system(key) or key in names.metadata:
            continue
        if value.strip() and not _is_said(value.strip(), messages):
            raise RecordRefusedError(
                Refusal.INPUT_BESIDE,
                f"{key!r} beside the conversation looks like its system text",
                f"--map system={key} reads it, --metadata {key} leaves it out",
            )


@lru_cache(maxsize=1024)
def _is_system(key: str) -> bool:
    return _SYSTEM.fullmatch(key.lower().replace("-", "_")) is not None


def refuse_beside_messages(
    messages: Sequence[Any], keys: Mapping[str, Any], names: KeyMap, record: Mapping[str, Any]
) -> None:
    """Raises RecordRefusedError for a text that the messages seem to be about, and for reasoning, calls, a question and
    answers outside them."""
    role = _last_role(messages)
    answers = _answers(keys, names) if role == "user" else []
    found = next(iter(names.found("messages", record)), None)
    beside = keys[answers[0]] if answers else None
    said = [*messages, beside] if isinstance(beside, dict) else messages
    for key, value in keys.items():
        if looks_like_reasoning(key, value) and key not in names.metadata and not _is_reasoned(value, said):
            whole = f"query={found},reasoning={key},answer={answers[0]}" if answers and found else f"reasoning={key}"
            raise RecordRefusedError(
                Refusal.ANSWER_BESIDE,
                f"{key!r} beside the messages looks like reasoning that leads to an answer",
                f"--map {whole} reads it as the reasoning of the last answer, --metadata {key} leaves it out"
                if isinstance(value, str) or (len(value) == 1 and isinstance(value, list) and isinstance(value[0], str))
                else f"--metadata {key} leaves it out",
            )
        if key in _CALLS and key not in names.metadata and _are_calls(value) and not _call(messages):
            raise RecordRefusedError(
                Refusal.TOOL_CALL_INVALID,
                f"{key!r} beside the messages holds calls, and no message has one",
                f"write them as tool_calls of the messages that make them; --metadata {key} leaves them out",
            )
    refuse_shown_beside(messages, keys, names, record)
    if role == "assistant":
        _refuse_turn_beside(messages, keys, names, record)
        _refuse_reply_beside(messages, keys, names)
    if answers and found:
        key, remedy = answers[0], f"--map query={found},answer={answers[0]} appends it to the messages"
        held = keys if key in FIRST_REPLIES else keys[key]
        for name, reply in FIRST_REPLIES.items() if isinstance(held, dict) else ():
            if first_reply(held.get(name), name):
                first = f"{name}[0]" if name == key else f"{key}.{name}[0]"
                program = f".{found} += [.{first} | {reply}] | del(.{key})"
                remedy = f"jq -c '{program}' FILE > records.jsonl appends its first choice"
        if spoken_reply(beside):
            program = f'.{found} += [{{role: "assistant"}} + .{key}] | del(.{key})'
            remedy = f"jq -c '{program}' FILE > records.jsonl appends it to the messages"
        raise RecordRefusedError(
            Refusal.UNANSWERED, f"the last message has no answer, and {key!r} beside the messages looks like it", remedy
        )


def _last_role(messages: Sequence[Any]) -> str | None:
    """The role of the last message, if it is known."""
    last = messages[-1] if messages else None
    name = next((last[key] for key in ROLE_KEYS if key in last), None) if isinstance(last, dict) else None
    return ROLES.get(name.strip().lower()) if isinstance(name, str) else None


def _answers(keys: Mapping[str, Any], names: KeyMap) -> list[str]:
    """The keys that hold an answer to messages that end with the user."""
    named = (*KNOWN_NAMES["answer"], *FIRST_REPLIES, "modelOutput", "message", "generation", "generated_text")
    answers = [key for key in named if not says_nothing(keys.get(key)) and key not in names.metadata]
    if answers == ["choices"] and not first_reply(keys["choices"], "choices"):  # such as those of a question
        return []
    return answers


def refuse_shown_beside(
    messages: Sequence[Any], keys: Mapping[str, Any], names: KeyMap, record: Mapping[str, Any]
) -> None:
    """Raises RecordRefusedError for a text that the messages seem to be about."""
    for key, value in keys.items():
        if not _is_shown(key) or key in names.metadata or says_nothing(value):
            continue
        if not isinstance(value, str | list | dict) or (isinstance(value, str) and _is_said(value.strip(), messages)):
            continue
        system = "+".join((*names.found("system", record), key))
        before = f"--map system={system} puts it before the messages, " if isinstance(value, str) else ""
        raise RecordRefusedError(
            Refusal.INPUT_BESIDE,
            f"{key!r} beside the messages looks like a text that they are about",
            f"{before}--metadata {key} leaves it out",
        )


def _refuse_turn_beside(
    messages: Sequence[Any], keys: Mapping[str, Any], names: KeyMap, record: Mapping[str, Any]
) -> None:
    """Raises RecordRefusedError for a question and its answer after messages that contain neither."""
    found = names.found("messages", record)
    turn = [next(iter(names.found(meaning, keys)), None) for meaning in ("query", "answer")]
    texts = [keys.get(key) for key in turn if key is not None]
    if not found or len(texts) < len(turn) or not all(isinstance(text, str) and text.strip() for text in texts):
        return
    if any(_is_said(str(text).strip(), messages) for text in texts):
        return
    question, answer = turn
    said = f'{{role: "user", content: .{question}}}, {{role: "assistant", content: .{answer}}}'
    program = f".{found[0]} += [{said}] | del(.{question}, .{answer})"
    raise RecordRefusedError(
        Refusal.INPUT_BESIDE,
        f"{question!r} and {answer!r} beside the messages hold a turn that the messages lack",
        f"jq -c '{program}' FILE > records.jsonl appends it, --metadata {question},{answer} leaves it out",
    )


def _refuse_reply_beside(messages: Sequence[Any], keys: Mapping[str, Any], names: KeyMap) -> None:
    """Raises RecordRefusedError for the reply of a server beside messages that end with the beginning of an answer,
    which the request gave."""
    for key in ("response", "choices"):
        reply = keys.get(key)
        choices = reply.get("choices") if isinstance(reply, dict) else reply
        if isinstance(choices, list) and first_reply(choices, "choices"):
            reply = choices[0]["message"]
        content = reply.get("content") if isinstance(reply, dict) else None
        said = [content] if isinstance(content, str) else [*held_texts(content)]
        if key not in names.metadata and said and not all(_is_said(text.strip(), messages) for text in said):
            raise RecordRefusedError(
                Refusal.ANSWER_BESIDE,
                f"{key!r} beside the messages holds an answer that they lack: their last one may be its beginning",
                f"give the whole answer as the last message, --metadata {key} leaves it out",
            )


_CALLS = ("tool_calls", "function_call", "function_calls")
FIRST_REPLIES = {"choices": ".message + {finish_reason}", "candidates": ".content + {finishReason}"}
"""Lists of replies of OpenAI's API and of Gemini's → the first one as a message, in jq."""


def _are_calls(value: Any) -> bool:
    """Whether a value is a call or a list of calls, or the JSON text of one."""
    parsed = parsed_or_none(value) if isinstance(value, str) else value
    items = parsed if isinstance(parsed, list) else [parsed]
    return bool(items) and all(isinstance(item, dict) and item for item in items)


def _call(messages: Sequence[Any]) -> bool:
    """Whether a message may hold a call: under a key, in blocks, or from a role of calls or results."""
    for message in messages:
        if not isinstance(message, dict) or any(not says_nothing(message.get(key)) for key in _CALLS):
            return True
        named = [message.get(key) for key in ROLE_KEYS]
        roles = [name.strip().lower() for name in named if isinstance(name, str)]
        if any(ROLES.get(role) == "tool" or "call" in role for role in roles):
            return True
        if any(isinstance(message.get(key), list) for key in TEXT_KEYS):
            return True
        if any(isinstance(text := message.get(key), str) and template_mark(text) for key in TEXT_KEYS):
            return True
    return False


def first_reply(replies: Any, name: str) -> bool:
    """Whether a value is the replies that a server of this name's API gives."""
    if not isinstance(replies, list) or not replies or not isinstance(replies[0], dict):
        return False
    return "message" in replies[0] if name == "choices" else isinstance(replies[0].get("content"), dict)


def spoken_reply(reply: Any) -> bool:
    """Whether a value is a message that does not say who speaks."""
    return isinstance(reply, dict) and isinstance(reply.get("content"), str) and reply.keys().isdisjoint(ROLE_KEYS)


def _is_reasoned(value: Any, messages: Sequence[Any]) -> bool:
    """Whether the messages bring their reasoning, or contain this one."""
    if any(isinstance(message, dict) and not _REASONING_KEYS.isdisjoint(message) for message in messages):
        return True
    texts = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]
    texts += held_texts(value)
    return all(_is_said(text.strip(), messages) for text in texts)


_REASONING_KEYS = frozenset(REASONING_KEYS)


def _is_said(text: str, messages: Sequence[Any]) -> bool:
    """Whether a message contains the text."""
    return any(
        text in said
        for message in messages
        if isinstance(message, dict)
        for key in TEXT_KEYS
        for value in [message.get(key)]
        for said in ([value] if isinstance(value, str) else held_texts(value))
    )
