"""One message of a chat record → its `Turn`s: its role, its reasoning, its text, its calls.

In: a message of OpenAI's form (`role`, `content`) or of ShareGPT's (`from`, `value`). Out: a `Turn`; several if the
message holds tool results next to text; or a refusal.

    reasoning_content, reasoning, thinking; parts of type thinking or reasoning    reasoning
    <think>…</think> at the beginning of an assistant's text                       reasoning, with --think-tags
    content as text, or as parts of type text                                      text
    tool_calls, function_call, function_calls; a turn from function_call           calls
    <tool_call>…</tool_call> in an assistant's text                                calls, with --call-tags
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spanloom.conversations.reading.blocks import messages_of
from spanloom.conversations.reading.call_tags import (
    json_of_calls,
    looks_like_toolace,
    results_of_user,
    written_calls,
    written_results,
)
from spanloom.conversations.reading.contents import OpenMessage, are_parts, parts_of, take, take_rest, texts_of
from spanloom.conversations.reading.flags import FLAGS, is_trained, is_truncated
from spanloom.conversations.reading.harmony import Part, rendered_parts
from spanloom.conversations.reading.markup import (
    TAG_ENDS,
    TAG_STARTS,
    bare_reasoning,
    may_hold_markup,
    refuse_markup,
    without_think_tags,
)
from spanloom.conversations.reading.tools import ARGUMENTS, NAME, call_of, calls_of, function_name, moved
from spanloom.conversations.turns import (
    RENDERED,
    Call,
    Dropping,
    Reading,
    RecordRefusedError,
    Refusal,
    Role,
    Turn,
    kind,
    says_nothing,
)

REPEATING = ("thought", "action")
"""SWE-agent's keys that repeat a part of the text, or the call. If they do, they become metadata."""
_REPEATING = frozenset(REPEATING)
ROLE_KEYS = ("role", "from", "speaker", "author", "sender")
TEXT_KEYS = ("content", "value", "text", "message", "parts")
OTHER_TEXTS = frozenset({"utterance", "utt", "mes", "body", "sentence"})
"""Keys of texts in corpora of dialogues. `--drop`, the remedy for other keys, would leave the text out."""
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
DETAILS = "reasoning_details"
FUNCTION_CALL, FUNCTION_CALLS = "function_call", "function_calls"
CALL_KEYS = (FUNCTION_CALL, FUNCTION_CALLS)
CALL_ROLES = (FUNCTION_CALL, "tool_call", FUNCTION_CALLS, "tool_calls", "function-call", "tool-call")
REASONING_ROLES = ("reasoning", "thinking", "thought")
"""Roles of separate turns that hold the reasoning for the next turn."""
ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "ai": "assistant",
    "chatbot": "assistant",
    **dict.fromkeys(CALL_ROLES, "assistant"),
    **dict.fromkeys(REASONING_ROLES, "assistant"),
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "tool_response": "tool",
    "tool_result": "tool",
    "function_response": "tool",
    "tool_output": "tool",
    "function_result": "tool",
    "function-response": "tool",
    "tool-response": "tool",
    "ipython": "tool",
    "environment": "tool",
}
"""Names of roles in data sets → role. ShareGPT has separate turns for a call and for its result."""

_LIKE_CALLS = re.compile(r"call|action|invo")
"""Parts of names of roles whose messages may be calls."""


def turns_of(message: Any, number: int, reading: Reading, dropping: Dropping, system: str = "") -> list[Turn]:
    """The turns of a message or a `Part`, in order; none if options drop the message or all of its content.

    `system`: the record's system text, in which ToolACE names the functions that texts call. Raises RecordRefusedError.
    """
    if isinstance(message, Part):
        unparsed = replace(reading, rendered=None)  # what a form says is text is not parsed again
        spoken = turns_of(message.message, number, unparsed, dropping, system)
        return [replace(turn, channel=message.channel or turn.channel, is_part=True) for turn in spoken]
    of = OpenMessage(number=number, reading=reading, dropping=dropping, system=system)
    if not isinstance(message, dict):
        raise RecordRefusedError(Refusal.MESSAGE_NOT_OBJECT, f"{of.where} is {kind(message)}, not an object")
    role = message.get(_first_key(message, ROLE_KEYS))
    name = role.strip().lower() if isinstance(role, str) else role
    if dropping.names and isinstance(name, str) and dropping.drops(f"role:{name}", message):
        return []
    if not isinstance(name, str) or not (name in ROLES or name in reading.roles):
        raise RecordRefusedError(
            Refusal.ROLE_UNKNOWN,
            f"{of.where} has the role {role!r}, not one of {', '.join(ROLES)}"
            if role is not None
            else f"{of.where} has no role; its keys are {', '.join(map(repr, message))}",
            ("" if _LIKE_CALLS.search(name) else f"--drop role:{name} leaves it out, ")
            + f"--role {name}=user (or assistant, tool, system) says who speaks"
            if isinstance(name, str)
            else _typed_roles(message),
        )
    speaker = _role(name, reading)
    trained = None
    if not FLAGS.isdisjoint(message) or reading.trained_if or reading.masked_if:
        message = dict(message)
        trained = is_trained(message, of.where, reading.trained_if, reading.masked_if)
        if trained and speaker != "assistant":
            of.metadata["trained"] = True
    content_key = _first_key(message, TEXT_KEYS)
    if speaker == "assistant" and (parts := rendered_parts(message.get(content_key), of.where, reading)):
        dropping.note(RENDERED)
        rest = {key: value for key, value in message.items() if key != content_key}
        return _of_rendered(parts, rest, trained, of, system)
    turns: list[Turn] = []
    for part in messages_of(message, content_key, speaker == "assistant", of.where, dropping):
        if part.get("role") == "tool" and speaker != "tool" and dropping.drops("role:tool", part):
            continue
        turns += _turns(part, of)
    speaking = [index for index, turn in enumerate(turns) if turn.role == "assistant"] if len(turns) > 1 else []
    for index in speaking[:-1]:  # a text before the end of the assistant's message is not its answer
        if turns[index].texts:
            turns[index] = replace(turns[index], channel="commentary")
    return _flagged(turns, message, trained, of)


_OF_USERS = ("is_user", "is_human", "isUser", "fromUser")
"""Keys of messages that are true if the user speaks (SillyTavern, PIPPA)."""


def _typed_roles(message: Mapping[str, Any]) -> str | None:
    """The remedy for a message without a role that says otherwise who speaks: by its type, by the name of its class
    (LangChain), by its source (AutoGen)."""
    if (key := next((key for key in _OF_USERS if isinstance(message.get(key), bool)), None)) is not None:
        role = f'.role = (if .{key} then "user" else "assistant" end)'
        return f"{key!r} says who speaks: {moved(key, role)} writes it as a role"
    names = message.get("id")
    for key, name, role, inner in (
        ("type", message.get("type"), ".type", "data"),
        ("id", names[-1] if isinstance(names, list) and names else None, ".id[-1]", "kwargs"),
        ("source", message.get("source"), ".source", ""),
    ):
        held = isinstance(message.get(inner), dict)
        if isinstance(name, str) and name.removesuffix("Message").lower() in ROLES and (held or key != "id"):
            if name not in ROLES:
                role = f'({role} | sub("Message$"; "") | ascii_downcase)'
            made = f"{{role: {role}}} + " + (f".{inner} | del(.type)" if held else f"del(.{key})")
            program = f"jq -c '.messages |= map({made})' FILE > records.jsonl"
            return f"its {key} {name!r} is a role: {program} writes it as one"
    return None


def _flagged(turns: list[Turn], message: Mapping[str, Any], trained: bool | None, of: OpenMessage) -> list[Turn]:
    """The turns of a message with what its flags say of all of them, and with its metadata."""
    if trained is False:
        turns = [replace(turn, trained=False) if turn.role == "assistant" else turn for turn in turns]
    if turns and turns[-1].role == "assistant" and is_truncated(message, of.reading.metadata):
        turns[-1] = replace(turns[-1], truncated=True)
    if turns and of.metadata:
        turns[0] = replace(turns[0], metadata=of.metadata)
    return turns


def _of_rendered(
    parts: Sequence[Part | dict[str, Any]], rest: dict[str, Any], trained: bool | None, of: OpenMessage, system: str
) -> list[Turn]:
    """The turns of an answer that is rendered text of Harmony. `rest`: the message's other keys."""
    turns = [turn for part in parts for turn in turns_of(part, of.number, of.reading, of.dropping, system)]
    take(rest, ROLE_KEYS)
    if beside := [key for key in (*REASONING_KEYS, "tool_calls", *CALL_KEYS) if not says_nothing(rest.get(key))]:
        detail = f"{of.where} is rendered text of Harmony, and has {beside[0]!r} beside it"
        raise RecordRefusedError(Refusal.MARKUP_UNCLEAR, detail, "--text-as-is keeps it as text")
    take_rest(rest, of)
    return _flagged(turns, rest, trained, of)


_PLAIN_ROLES = {name: role for name, role in ROLES.items() if name not in (*CALL_ROLES, *REASONING_ROLES)}


def plain_turn(message: Any, number: int, dropping: Dropping) -> Turn | None:
    """Fast path, in a third of the time, for a message with the most common keys: a role and a text; reasoning and
    calls of the assistant; the id and name of the call that a tool answers.

    None for any other message, and for texts of the assistant that may hold markup. Options that change messages
    (`--drop`, `--call-tags`, `--role`, flags of `--map`) need `turns_of`. Raises RecordRefusedError.
    """
    if type(message) is not dict:
        return None
    name, text, keys = message.get("role"), message.get("content"), len(message)
    if name is None and keys == 2:
        name, text = message.get("from"), message.get("value")
    role = _PLAIN_ROLES.get(name) if type(name) is str else None
    if role == "assistant":
        return _plain_answer(message, text, number, dropping) if type(text) is str or "content" in message else None
    if role is None or type(text) is not str or not text:
        return None
    if keys == 2:
        return Turn(number=number, role=role, texts=(text,))
    call_id, tool = message.get("tool_call_id"), message.get("name")
    if role != "tool" or keys != 2 + ("tool_call_id" in message) + ("name" in message):
        return None
    if not isinstance(call_id, str | None) or not isinstance(tool, str | None):
        return None
    return Turn(number=number, role=role, texts=(text,), call_id=call_id or None, name=_function(tool))


def _plain_answer(message: dict[str, Any], text: Any, number: int, dropping: Dropping) -> Turn | None:
    """The same for an assistant message."""
    texts: tuple[str, ...] = ()
    if text is not None:
        if type(text) is not str or may_hold_markup(text):
            return None
        if text and not text.isspace():
            texts = (text,)
    if len(message) == 2:
        return Turn(number=number, role="assistant", texts=texts) if texts else None
    thought, calls = message.get("reasoning_content"), message.get("tool_calls")
    if len(message) != 2 + ("reasoning_content" in message) + ("tool_calls" in message):
        return None
    if thought is not None and (type(thought) is not str or not thought or thought.isspace()):
        return None
    if thought is not None and (thought.lstrip()[0] in TAG_STARTS or thought.rstrip()[-1] in TAG_ENDS):
        return None
    if not isinstance(calls, list | None) or not (texts or calls or thought):
        return None
    return Turn(
        number=number,
        role="assistant",
        texts=texts,
        reasoning=() if thought is None else (thought,),
        calls=tuple(calls_of(calls, f"message {number}", dropping)) if calls else (),
    )


def _role(name: str, reading: Reading) -> Role:
    return reading.roles.get(name) or ROLES[name]


def _turns(message: dict[str, Any], of: OpenMessage) -> list[Turn]:
    keys, where = dict(message), of.where
    name = str(take(keys, ROLE_KEYS)).strip().lower()
    role, dropping = _role(name, of.reading), of.dropping
    before = dropping.counts.total()
    content = take(keys, TEXT_KEYS)
    if content is None and (other := OTHER_TEXTS & keys.keys() - of.reading.metadata):
        key = min(other)
        raise RecordRefusedError(
            Refusal.CONTENT_MISSING,
            f"{where} has its text under {key!r}",
            f"{moved(key, f'.content = .{key}')} writes it as the content",
        )
    for key in REPEATING if not _REPEATING.isdisjoint(keys) else ():
        repeats = isinstance(content, str) and isinstance(value := keys.get(key), str) and value.strip() in content
        if repeats or (key == "action" and not says_nothing(keys.get("tool_calls"))):
            of.metadata[key] = keys.pop(key, None)
    if name in CALL_ROLES:
        turn = replace(_written_calls(keys, content, of), role=role)
    elif role == "assistant":
        is_part = name in REASONING_ROLES and name not in of.reading.roles
        if is_part:
            keys["reasoning"], content = content, None
        turn = _assistant(keys, content, of)
        turn.is_part = is_part
    elif role == "tool":
        return _results(keys, content, of)
    else:
        called = _take_name(keys, dropping) if role == "user" else None
        texts = texts_of(content, of)
        style = of.reading.call_tags
        if role == "user" and style is not None and (results := results_of_user("".join(texts), style)):
            take_rest(keys, of)
            return [Turn(number=of.number, role="tool", texts=(text,), name=name) for name, text in results]
        turn = Turn(number=of.number, role=role, texts=texts, name=called)
    take_rest(keys, of)
    if role == "assistant" and not (turn.texts or turn.reasoning or turn.calls):
        if dropping.counts.total() > before:
            return []
        raise RecordRefusedError(
            Refusal.ASSISTANT_EMPTY, f"{where} (assistant) is empty: no text, no reasoning, no call"
        )
    if role == "user" and not turn.texts:
        if dropping.counts.total() > before:
            return []
        raise RecordRefusedError(Refusal.CONTENT_MISSING, f"{where} (user) has no text")
    return [turn]


def _first_key(message: dict[str, Any], names: Sequence[str]) -> str:
    """The first of `names` with a value in the message; the first name if none has one."""
    for name in names:
        if message.get(name) is not None:
            return name
    return names[0]


def _take_name(keys: dict[str, Any], dropping: Dropping) -> str | None:
    """A user's name, if a header can hold it unchanged; otherwise it stays in the keys."""
    name = None if "name" in dropping.names else keys.get("name")
    return str(keys.pop("name")) if isinstance(name, str) and NAME.fullmatch(name) else None


def _assistant(keys: dict[str, Any], content: Any, of: OpenMessage) -> Turn:
    where, dropping = of.where, of.dropping
    reasoning, texts = parts_of(content, where, of)
    reasonings = [reasoning] if reasoning else []
    if not says_nothing(keys.get(DETAILS)) and DETAILS not in dropping.names:
        _take_details(keys, bool(reasonings), of)
    brought: list[str] = []
    for key in REASONING_KEYS:
        value = keys.pop(key, None)
        if says_nothing(value) or dropping.drops(key, value):
            continue
        brought.append(key)
        if not isinstance(value, str):
            raise RecordRefusedError(Refusal.CONTENT_NOT_TEXT, f"{where}: {key} is {kind(value)}, not text")
        if value.strip() and (bare := bare_reasoning(value, where, of.reading)):
            reasonings.append((bare,))
    if not "".join(texts).strip():
        texts = ()
    tagged, texts = without_think_tags(texts, where, of.reading, dropping)
    reasonings += [tagged] if tagged else []
    if any("".join(candidate).strip() != "".join(reasonings[0]).strip() for candidate in reasonings[1:]):
        named = ", ".join(f"--drop {name}" for name in (*brought, *(["think"] if tagged else [])))
        remedy = f"one of {named} leaves that one out" if named else None
        raise RecordRefusedError(Refusal.REASONING_TWICE, f"{where} brings two different reasonings", remedy)
    texts, calls = _tagged_calls(texts, of)
    if not says_nothing(value := keys.pop("tool_calls", None)) and not dropping.drops("tool_calls", value):
        calls += calls_of(value, where, dropping)
    if not says_nothing(value := keys.pop(FUNCTION_CALL, None)) and not dropping.drops(FUNCTION_CALL, value):
        named = f"{where}, {FUNCTION_CALL}"
        calls += calls_of(value, named, dropping) if isinstance(value, list) else [call_of(value, named, dropping)]
    if not says_nothing(value := keys.pop(FUNCTION_CALLS, None)) and not dropping.drops(FUNCTION_CALLS, value):
        calls += calls_of(value, where, dropping)
    spoken = reasonings[0] if reasonings else ()
    return Turn(number=of.number, role="assistant", texts=texts, reasoning=spoken, calls=tuple(calls))


def _take_details(keys: dict[str, Any], reasons: bool, of: OpenMessage) -> None:
    """Makes `reasoning_details` of OpenRouter metadata; their texts are the reasoning if the message has no other."""
    details = of.metadata[DETAILS] = keys.pop(DETAILS)
    if reasons or any(not says_nothing(keys.get(key)) for key in REASONING_KEYS):
        return
    texts = [detail.get("text") for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
    if said := "".join(text for text in texts if isinstance(text, str)):
        keys[REASONING_KEYS[0]] = said


def _tagged_calls(texts: tuple[str, ...], of: OpenMessage) -> tuple[tuple[str, ...], list[Call]]:
    """The texts without the calls in the requested style, and these calls."""
    style = of.reading.call_tags
    calls: list[Call] = []
    if style is not None and not (style == "toolace" and not _toolace(texts, of)):
        before_calls: list[str] = []
        for text in texts:
            before, written = written_calls(text, style, of.where)
            if calls and before.strip() and not written:
                raise RecordRefusedError(Refusal.MARKUP_UNCLEAR, f"{of.where}: text follows a call in it")
            before_calls += [before] if before else []
            calls += calls_of(written, of.where, of.dropping, written=True)
        texts = tuple(before_calls)
    elif style is None and not of.reading.text_as_is and _toolace(texts, of):
        raise RecordRefusedError(
            Refusal.MARKUP,
            f"{of.where} is a call as ToolACE writes it, which would be trained as text of the answer",
            "--call-tags toolace reads it as calls, --text-as-is keeps it as text",
        )
    refuse_markup(texts, of.where, of.reading)
    return texts, calls


def _toolace(texts: tuple[str, ...], of: OpenMessage) -> bool:
    return len(texts) == 1 and looks_like_toolace(texts[0], of.system)


def _results(keys: dict[str, Any], content: Any, of: OpenMessage) -> list[Turn]:
    """Tool results: one turn, or one turn for each result in a text of the requested style."""
    where = of.where
    if not (content is None or isinstance(content, str) or are_parts(content)):
        content = json.dumps(content, ensure_ascii=False)
    call_id, named = keys.pop("tool_call_id", None), keys.pop("tool_name", None)  # Ollama's
    tool = keys.pop("name", named)
    several = keys.pop("tool_call_ids", None)
    if call_id is None and isinstance(several, list) and len(several) == 1:
        call_id = several[0]
    elif not says_nothing(several):
        keys["tool_call_ids"] = several
    if isinstance(call := keys.get("tool_call"), dict) and call_id is not None and call.get("id") == call_id:
        of.metadata["tool_call"] = keys.pop("tool_call")  # AgentDojo repeats the call beside its result
    for key, value in (("tool_call_id", call_id), ("name", tool)):
        if value is not None and not isinstance(value, str):
            raise RecordRefusedError(Refusal.TOOL_RESULT_UNMATCHED, f"{where}: its {key} is {kind(value)}, not text")
    texts = texts_of(content, of)
    take_rest(keys, of)
    style = of.reading.call_tags
    results = written_results("".join(texts), style) if style is not None else []
    if len(results) > 1 or (results and results[0]["content"] != "".join(texts)):
        return [
            Turn(number=of.number, role="tool", texts=(result["content"],), name=_function(result["name"] or tool))
            for result in results
        ]
    return [Turn(number=of.number, role="tool", texts=texts, call_id=call_id or None, name=_function(tool))]


def _function(name: str | None) -> str | None:
    return function_name(name) if name else None


def _written_calls(keys: dict[str, Any], content: Any, of: OpenMessage) -> Turn:
    """A turn `function_call` or `tool_call`: its text is the JSON of a call or of several, perhaps after reasoning in
    tags and text; or its keys are those of a call."""
    where, dropping = of.where, of.dropping
    reasoning: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    if says_nothing(content) and "name" in keys:
        named = ("id", "type", "name", "function", *ARGUMENTS)
        content = {key: keys.pop(key) for key in named if key in keys}
    elif says_nothing(content) and not says_nothing(keys.get("tool_calls")):
        content = keys.pop("tool_calls")
    if written := isinstance(content, str):
        reasoning, rest = without_think_tags((content,), where, of.reading, dropping)
        before, content = json_of_calls("".join(rest), where)
        texts = (before,) if before else ()
        refuse_markup(texts, where, of.reading)
    calls = calls_of(content if isinstance(content, list) else [content], where, dropping, written=written)
    return Turn(number=of.number, role="assistant", texts=texts, reasoning=reasoning, calls=tuple(calls), is_part=True)
