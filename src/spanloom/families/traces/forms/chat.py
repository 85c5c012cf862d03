"""Chat data with reasoning → traces: a user's message, the reasoning and the answer.

In: a record of any form that `spanloom.conversations` reads: messages with `<think>` tags (R1) or `reasoning_content`,
OpenThoughts, s1K, columns. Out: a trace, its reasoning as a single step. Instructions become `meta.system`, which the
export `messages` writes as system message.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from spanloom.conversations.forms import key_map, read_record, recognise
from spanloom.conversations.forms.form import Form
from spanloom.conversations.turns import ChatRecord, Dropping, Reading, RecordLeftOutError, RecordRefusedError, Turn
from spanloom.errors import SourceError
from spanloom.families.traces.forms.form import NoTraceError, TraceForm, trace_json

_READING = Reading(think_tags=True, text_as_is=True)
_INSTRUCTIONS = ("system", "developer")
_REASONING = "the reasoning, by key or in tags"


def chat_form(record: Mapping[str, Any]) -> TraceForm | None:
    """The form of a record of chat data; None for any other record."""
    try:
        form = recognise(record, key_map([]), "")
    except SourceError:
        return None

    def traces(each: Mapping[str, Any]) -> list[dict[str, Any] | NoTraceError]:
        return [_trace(each, form)]

    used = {meaning: " + ".join(form.keys.found(meaning, record)) for meaning in form.kind.meanings}
    if used.get("query"):
        keys = {"prompt": used["query"], "steps": used.get("reasoning") or _REASONING, "answer": used.get("answer", "")}
    else:
        keys = {"prompt": "the user's message", "steps": _REASONING, "answer": "the assistant's text"}
    return TraceForm(title=form.kind.title, keys=keys, traces=traces)


def _trace(record: Mapping[str, Any], form: Form) -> dict[str, Any]:
    try:
        chat = read_record(record, form, _READING, Dropping())
    except RecordRefusedError as refused:
        # Other remedies name options of `convert`; a program of jq changes the file.
        remedy = refused.remedy if refused.remedy is not None and refused.remedy.startswith("jq ") else None
        raise NoTraceError(refused.reason.value, refused.detail, remedy) from None
    except RecordLeftOutError as left_out:
        raise NoTraceError(left_out.reason.value, "the record says that it is not to be trained") from None
    head = next((index for index, turn in enumerate(chat.turns) if turn.role not in _INSTRUCTIONS), len(chat.turns))
    prompt, thoughts, answer = _single_turn(chat, chat.turns[head:])
    meta = {
        **chat.rest,
        "id": chat.id,
        "system": "\n\n".join("".join(turn.texts) for turn in chat.turns[:head]) or None,
        "message_metadata": list(chat.message_metadata) or None,
    }
    return trace_json(prompt, thoughts, answer, meta)


def _single_turn(chat: ChatRecord, turns: Sequence[Turn]) -> tuple[str, list[str], str]:
    """Prompt, reasoning and answer of the turns after the instructions.

    Raises NoTraceError for anything but a question with one reasoned answer.
    """
    users = [turn for turn in turns if turn.role == "user"]
    if len(users) != 1 or turns[0].role != "user":
        raise NoTraceError("no single question", f"the record has {len(users)} messages of a user")
    answers = turns[1:]
    if any(turn.role in _INSTRUCTIONS for turn in answers):
        raise NoTraceError("system not first", "a system text comes after the question")
    if not all(turn.trained for turn in answers):
        raise NoTraceError("not trained", "the record says that an answer is not to be trained")
    if any(turn.truncated for turn in answers):
        raise NoTraceError("truncated", "a limit of tokens cut the answer off, and a trace is trained with its end")
    if chat.tools or any(turn.calls or turn.role != "assistant" or turn.channel == "commentary" for turn in answers):
        raise NoTraceError("tools", "a trace holds no calls of functions")
    thoughts = [part for turn in answers for part in turn.reasoning if part.strip()]
    texts = [part for turn in answers for part in turn.texts]
    if not thoughts:
        raise NoTraceError("no reasoning", "neither in tags nor under a key such as reasoning_content")
    if not texts:
        raise NoTraceError("no answer", "the assistant says nothing behind its reasoning")
    return "".join(users[0].texts), ["".join(thoughts)], "".join(texts)
