"""One message of a chat record → a `Turn`: its role, its reasoning, its text, its calls.

In: a message of OpenAI's form (`role`, `content`) or of ShareGPT's (`from`, `value`). Out: `Turn`, or a refusal.

    reasoning_content, reasoning, thinking; parts of type thinking or reasoning    reasoning
    <think>…</think> at the beginning of an assistant's text                       reasoning, where asked for
    content as text, or as parts of type text                                      text
    tool_calls, function_call; a turn from function_call                           calls
"""

import json
from collections.abc import Sequence
from typing import Any

from spanloom.conversations.tools import NAME, call_of, calls_of, function_name, parsed_json, refuse_other_keys
from spanloom.conversations.turns import (
    Call,
    Dropping,
    RecordRefusedError,
    Refusal,
    Role,
    Turn,
    kind,
    says_nothing,
)

ROLE_KEYS = ("role", "from", "speaker")
TEXT_KEYS = ("content", "value", "text")
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
THINK, THINK_END = "<think>", "</think>"

FUNCTION_CALL = "function_call"
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    FUNCTION_CALL: "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
"""What data sets call the roles. ShareGPT has a turn of its own for a call and for what the function answered."""


def turn_of(message: Any, number: int, think_tags: bool | None, dropping: Dropping) -> Turn | None:
    """The turn of a message; None where options drop it, or all that it held.

    `think_tags`: True takes them for reasoning, False for text, None refuses them.
    """
    where = f"message {number}"
    if not isinstance(message, dict):
        raise RecordRefusedError(Refusal.MESSAGE_NOT_OBJECT, f"{where} is {kind(message)}, not an object")
    keys = dict(message)
    value = _take(keys, ROLE_KEYS)
    name = value.strip().lower() if isinstance(value, str) else value
    if isinstance(name, str) and dropping.drops(f"role:{name}", message):
        return None
    role = ROLES.get(name) if isinstance(name, str) else None
    if role is None:
        raise RecordRefusedError(
            Refusal.ROLE_UNKNOWN,
            f"{where} has the role {value!r}, not one of {', '.join(ROLES)}",
            f"--drop role:{name}" if isinstance(name, str) else None,
        )
    before = sum(dropping.counts.values())
    content = _take(keys, TEXT_KEYS)
    if name == FUNCTION_CALL:
        turn = Turn(number=number, role=role, calls=_written_calls(content, where, dropping))
    elif role == "assistant":
        turn = _assistant(keys, content, number, think_tags, dropping)
    elif role == "tool":
        turn = _result(keys, content, number, dropping)
    else:
        called = _take_name(keys, dropping) if role == "user" else None
        turn = Turn(number=number, role=role, texts=_texts(content, where, dropping), name=called)
    refuse_other_keys(keys, where, dropping)
    if role == "assistant" and not (turn.texts or turn.reasoning or turn.calls):
        if sum(dropping.counts.values()) > before:
            return None
        raise RecordRefusedError(
            Refusal.ASSISTANT_EMPTY, f"{where} (assistant) is empty: no text, no reasoning, no call"
        )
    if role == "user" and not turn.texts:
        if sum(dropping.counts.values()) > before:
            return None
        raise RecordRefusedError(Refusal.CONTENT_MISSING, f"{where} (user) has no text")
    return turn


def _take(keys: dict[str, Any], names: Sequence[str]) -> Any:
    """The value under the first of `names` that says something, taken out of `keys`."""
    for name in names:
        if keys.get(name) is not None:
            return keys.pop(name)
    return None


def _take_name(keys: dict[str, Any], dropping: Dropping) -> str | None:
    """A user's name, where it can stand in a header as it is; else it stays, as a key without a place."""
    name = None if "name" in dropping.names else keys.get("name")
    return str(keys.pop("name")) if isinstance(name, str) and NAME.fullmatch(name) else None


def _assistant(keys: dict[str, Any], content: Any, number: int, think_tags: bool | None, dropping: Dropping) -> Turn:
    where = f"message {number}"
    weight = keys.pop("weight", None)
    if weight not in (None, 1) and not dropping.drops("weight", weight):
        raise RecordRefusedError(
            Refusal.WEIGHT_ZERO,
            f"{where} has the weight {weight!r}, and each answer is trained alike",
            "--drop weight (train on it all the same)",
        )
    reasoning, texts = _parts(content, where, dropping)
    reasonings = [reasoning] if reasoning else []
    for key in REASONING_KEYS:
        value = keys.pop(key, None)
        if says_nothing(value) or dropping.drops(key, value):
            continue
        if not isinstance(value, str):
            raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{where}: {key} is {kind(value)}, not text")
        if value.strip():
            reasonings.append((value,))
    if not "".join(texts).strip():
        texts = ()
    tagged, texts = _without_think_tags(texts, where, think_tags, dropping)
    reasonings += [tagged] if tagged else []
    if any(candidate != reasonings[0] for candidate in reasonings[1:]):
        raise RecordRefusedError(
            Refusal.REASONING_TWICE, f"{where} brings two different reasonings", "--drop the key of one of them"
        )
    calls: list[Call] = []
    if not says_nothing(value := keys.pop("tool_calls", None)) and not dropping.drops("tool_calls", value):
        calls += calls_of(value, where, dropping)
    if not says_nothing(value := keys.pop(FUNCTION_CALL, None)) and not dropping.drops(FUNCTION_CALL, value):
        calls.append(call_of(value, f"{where}, {FUNCTION_CALL}", dropping))
    return Turn(
        number=number, role="assistant", texts=texts, reasoning=reasonings[0] if reasonings else (), calls=tuple(calls)
    )


def _result(keys: dict[str, Any], content: Any, number: int, dropping: Dropping) -> Turn:
    where = f"message {number}"
    if isinstance(content, dict):
        content = json.dumps(content, ensure_ascii=False)
    call_id, tool = keys.pop("tool_call_id", None), keys.pop("name", None)
    for key, value in (("tool_call_id", call_id), ("name", tool)):
        if value is not None and not isinstance(value, str):
            raise RecordRefusedError(Refusal.TOOL_RESULT_UNMATCHED, f"{where}: its {key} is {kind(value)}, not text")
    texts = _texts(content, where, dropping)
    return Turn(
        number=number, role="tool", texts=texts, call_id=call_id or None, name=function_name(tool) if tool else None
    )


def _written_calls(content: Any, where: str, dropping: Dropping) -> tuple[Call, ...]:
    """ShareGPT's turn `function_call`, whose text is the JSON of a call or of several."""
    if isinstance(content, str):
        content = parsed_json(content, Refusal.TOOL_CALL_INVALID, f"{where}: the text of the call")
    return tuple(calls_of(content if isinstance(content, list) else [content], where, dropping))


def _texts(content: Any, where: str, dropping: Dropping) -> tuple[str, ...]:
    """The text of a message that no assistant wrote."""
    reasoning, texts = _parts(content, where, dropping)
    if reasoning:
        raise RecordRefusedError(Refusal.PART_UNKNOWN, f"{where} holds reasoning, and is not from the assistant")
    return texts


def _parts(content: Any, where: str, dropping: Dropping) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Reasoning and text of a content: text, or parts in a row."""
    if says_nothing(content):
        return (), ()
    if isinstance(content, str):
        return (), (content,)
    if not isinstance(content, list):
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{where}: the content is {kind(content)}, not text")
    reasoning: list[str] = []
    texts: list[str] = []
    for index, part in enumerate(content):
        place = f"{where}, part {index}"
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{place} is {kind(part)}, not text")
        keys = dict(part)
        name = keys.pop("type", None) or "text"
        if isinstance(name, str) and dropping.drops(f"part:{name}", part):
            continue
        if name in ("text", "input_text", "output_text"):
            texts.append(_text(keys.pop("text", None), place))
        elif name in ("thinking", "reasoning"):
            if texts:
                raise RecordRefusedError(Refusal.REASONING_AFTER_ANSWER, f"{place}: reasoning after text")
            value = _take(keys, ("thinking", "reasoning", "text"))
            if isinstance(value, list):
                deeper, inner = _parts(value, place, dropping)
                reasoning += [*deeper, *inner]
            else:
                reasoning.append(_text(value, place))
        else:
            raise RecordRefusedError(
                Refusal.PART_UNKNOWN, f"{place} is of type {name!r}: text alone becomes tokens", f"--drop part:{name}"
            )
        refuse_other_keys(keys, place, dropping)
    return tuple(text for text in reasoning if text), tuple(text for text in texts if text)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{where}: the text is {kind(value)}")
    return value


def _without_think_tags(
    texts: tuple[str, ...], where: str, think_tags: bool | None, dropping: Dropping
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Reasoning and text of an answer that may begin with reasoning in tags, white space next to the tags taken away.

    `</think>` alone counts too: templates that put `<think>` into the prompt leave it out of the answer.
    """
    if think_tags is False or not any(THINK in text or THINK_END in text for text in texts):
        return (), texts
    if think_tags is None and "think" not in dropping.names:
        raise RecordRefusedError(
            Refusal.THINK_TAGS,
            f"{where} holds {THINK} or {THINK_END}, which would be trained as text of the answer",
            "--think-tags makes analysis of it, --drop think leaves it out, --no-think-tags keeps it as text",
        )
    reasoning, closing, answer = texts[0].partition(THINK_END)
    reasoning = reasoning.strip().removeprefix(THINK).strip()
    if (
        not closing
        or THINK in reasoning
        or any(tag in text for text in (answer, *texts[1:]) for tag in (THINK, THINK_END))
    ):
        raise RecordRefusedError(
            Refusal.THINK_TAGS_UNCLEAR,
            f"{where} does not begin with one {THINK}…{THINK_END}, or holds more of them",
            "--no-think-tags keeps such tags as text",
        )
    rest = tuple(text for text in (answer.lstrip(), *texts[1:]) if text)
    if not reasoning or dropping.drops("think", reasoning):
        return (), rest
    return (reasoning,), rest
