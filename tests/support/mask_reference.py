"""Which tokens a model samples, a second time: by transformers' rendering, prefixes, and one other text.

In: a record of plain messages, a template, a tokenizer of the tokenizers package, stop ids. Out: for each assistant
message the ids through its turn's end and the number of prompt tokens. It shares no code with what it checks.
"""

import json
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

from tokenizers import Tokenizer

OTHER = "ЖЖЖ"
"""A text that no conversation ends in."""


@dataclass(frozen=True)
class ReferenceRun:
    """`ids` of prompt and completion; the first `prompt` of them are context. `text`: F, rendered by transformers.

    `ended`: the turn ends in F itself, and `ids` with it; else `ids` are those of F.
    """

    ids: list[int]
    prompt: int
    text: str
    ended: bool


@dataclass(frozen=True, kw_only=True)
class ReferenceForm:
    """`reasoning`: a field or `inline`; `arguments`: `object` or `text`; `null`: no content beside calls."""

    reasoning: str
    arguments: str
    null: bool


def openai_messages(record: dict[str, Any], form: ReferenceForm) -> list[dict[str, Any]]:
    """The messages of a record for a template. Reads the OpenAI form."""
    messages = []
    for message in deepcopy(record["messages"]):
        thought = message.pop("reasoning_content", None)
        calls = message.pop("tool_calls", None)
        if calls and not message.get("content"):
            message["content"] = None if form.null else ""
        if thought and form.reasoning == "inline":
            message["content"] = f"<think>\n{thought}\n</think>\n\n{message['content'] or ''}"
        elif thought:
            message[form.reasoning] = thought
        if calls:
            for call in calls:
                if form.arguments == "text":
                    call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
            message["tool_calls"] = calls
        messages.append({key: value for key, value in message.items() if value is not None})
    return messages


def rendered(
    template: str, messages: list[dict[str, Any]], record: dict[str, Any], given: dict[str, Any], *, prompt: bool
) -> str:
    """The text that transformers makes."""
    texts, _ = render_jinja_template(
        [messages], tools=record.get("tools"), chat_template=template, add_generation_prompt=prompt, **given
    )
    return str(texts[0])


def reference_run(
    record: dict[str, Any],
    run: int,
    form: ReferenceForm,
    template: str,
    tokenizer: Tokenizer,
    stops: set[int],
    given: dict[str, Any],
) -> ReferenceRun:
    """The run `run`."""
    messages = openai_messages(record, form)
    prompt = rendered(template, messages[:run], record, given, prompt=True)
    whole = rendered(template, messages[: run + 1], record, given, prompt=False)
    assert whole.startswith(prompt)
    other = rendered(template, [*messages[:run], _with_other_end(messages[run])], record, given, prompt=False)
    assert other != whole
    same = 0
    while same < min(len(other), len(whole)) and other[-1 - same] == whole[-1 - same]:
        same += 1
    prompt_ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    encoding = tokenizer.encode(whole, add_special_tokens=False)
    ids, ends = encoding.ids, encoding.offsets
    if ids[: len(prompt_ids)] != prompt_ids:
        apart = tokenizer.encode(whole[len(prompt) :], add_special_tokens=False)
        ids = prompt_ids + apart.ids
        ends = [(0, 0)] * len(prompt_ids) + [(first + len(prompt), end + len(prompt)) for first, end in apart.offsets]
    for place in range(len(prompt_ids), len(ids)):
        if ids[place] in stops and ends[place][0] >= len(whole) - same:
            return ReferenceRun(ids[: place + 1], len(prompt_ids), whole, True)
    return ReferenceRun(ids, len(prompt_ids), whole, False)


def _with_other_end(message: dict[str, Any]) -> dict[str, Any]:
    changed = deepcopy(message)
    if not changed.get("tool_calls"):
        content = changed.get("content") or ""
        changed["content"] = content.rstrip()[:-1] + OTHER + content[len(content.rstrip()) :]
        return changed
    for call in changed["tool_calls"]:
        function = call["function"]
        if isinstance(function["arguments"], str):
            function["arguments"] = function["arguments"].replace('": "', f'": "{OTHER}')
        elif any(isinstance(value, str) for value in function["arguments"].values()):
            for name, value in function["arguments"].items():
                if isinstance(value, str):
                    function["arguments"][name] = OTHER
        elif function["arguments"]:
            function["arguments"] = dict.fromkeys(function["arguments"], 730_019)
        if not function["arguments"] or function["arguments"] == "{}":
            function["name"] += OTHER
    return changed
