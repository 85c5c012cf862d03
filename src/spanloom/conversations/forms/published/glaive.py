"""Transcripts of Glaive's function calling, version 2.

In: a record with `system` and `chat`, texts in which USER, ASSISTANT and FUNCTION RESPONSE begin a message. Out: these
as messages; definitions of functions move from the system text to the tools.

    SYSTEM: You are … functions. Use them if required -\n{"name": "f", …}
    USER: Q\n\n\nASSISTANT: <functioncall> {"name": "f", "arguments": '{"a": 1}'} <|endoftext|>\n\n\n
    FUNCTION RESPONSE: {"b": 2}\n\n\nASSISTANT: A <|endoftext|>
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from spanloom.conversations.forms.form import Draft, FormKind, Taken
from spanloom.conversations.forms.keys import KeyMap
from spanloom.conversations.reading.call_tags import written_calls
from spanloom.conversations.turns import RecordRefusedError, Refusal, kind

NAMES = {"chat": ("chat",)}
_MESSAGE = re.compile(r"(?:\A\s*|\n\s*\n\s*)(USER|ASSISTANT|FUNCTION RESPONSE):[ \t]*")
_END = "<|endoftext|>"


def _recognises(record: Mapping[str, Any], names: KeyMap) -> bool:
    value = names.found("chat", record)
    return bool(value) and isinstance(record[value[0]], str) and _MESSAGE.match(record[value[0]]) is not None


def _draft(taken: Taken) -> Draft:
    chat = taken.one("chat")
    marks = list(_MESSAGE.finditer(chat)) if isinstance(chat, str) else []
    if not marks or marks[0].start():
        raise RecordRefusedError(Refusal.NO_MESSAGES, f"the chat is {kind(chat)} that does not begin with USER:")
    ends = [*(mark.start() for mark in marks[1:]), len(chat)]
    messages = [
        _message(mark[1], chat[mark.end() : end].strip(), f"message {number}")
        for number, (mark, end) in enumerate(zip(marks, ends, strict=True))
    ]
    system, tools = _system(taken.one("system"))
    return Draft(messages=messages, system=[system] if system else [], tools=tools or None)


def _message(name: str, text: str, where: str) -> dict[str, Any]:
    if name == "USER":
        return {"role": "user", "content": text}
    if name == "FUNCTION RESPONSE":
        return {"role": "tool", "content": text}
    text = text.removesuffix(_END).rstrip()
    before, calls = written_calls(text, "glaive", where)
    return {"role": "assistant", "content": before, **({"tool_calls": calls} if calls else {})}


def _system(value: Any) -> tuple[Any, list[Any]]:
    """The system text without `SYSTEM:` and without definitions; and the definitions."""
    if not isinstance(value, str):
        return value, []
    text = value.removeprefix("SYSTEM:").strip()
    tools: list[Any] = []
    kept, at = "", 0
    while (begin := text.find("{", at)) >= 0:
        try:
            tool, end = json.JSONDecoder().raw_decode(text, begin)
        except (ValueError, RecursionError):
            end, tool = begin + 1, None
        if isinstance(tool, dict) and "name" in tool:
            tools.append(tool)
            kept += text[at:begin]
        else:
            kept += text[at:end]
        at = end
    kept += text[at:]
    return kept.strip() if tools else text, tools


GLAIVE = FormKind(
    name="glaive",
    title="a transcript of USER, ASSISTANT and FUNCTION RESPONSE (Glaive)",
    meanings=("id", "system", "chat", "tools"),
    recognises=_recognises,
    draft=_draft,
    names=NAMES,
)
