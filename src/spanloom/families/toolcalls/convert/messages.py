"""Your own chat data: conversations of any form that `spanloom convert` reads; the last assistant turn is the answer.

In: a record such as OpenAI's `messages` (role, content, `tool_calls`), and its split and labels: as keys of the record,
in its `labels`, or in a file by id. Out: the last assistant turn with its context; with `turns="all"` each one.

    {"id": "a1", "messages": […], "split": "harmful", "expected_tool": "f", "observed_tool": "g"}
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spanloom.conversations.forms import recognise
from spanloom.conversations.forms.keys import BESIDE
from spanloom.conversations.turns import RecordRefusedError, says_nothing
from spanloom.errors import SourceError
from spanloom.families.toolcalls.convert.dialogues import dialogue_of, exchanges, read_chat, unusable
from spanloom.families.toolcalls.convert.drafts import Draft, Options, UnusableError
from spanloom.families.toolcalls.format.control import PYTHON_TAG
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.format.tables import HARMFUL, SPLITS
from spanloom.records.json_lines import json_lines

SOURCE = "own"
LABELS = ("expected_tool", "simulated_tool", "observed_tool", "is_flip_success", "category", "attack_type")
"""Keys of a record that are labels; all others but the conversation, `id`, `split`, `labels` and `tools` are
metadata."""

_TAKEN = frozenset({*LABELS, "id", "split", "labels"})
_KEPT = frozenset(BESIDE) - {"weight"}
"""Meanings of keys that a sample keeps as they are; the weight of a conversation is that of its samples."""


def drafts(record: Mapping[str, Any], options: Options) -> Iterator[Draft | UnusableError]:
    """Yields the samples of one record. Raises UnusableError without an assistant turn or a valid split."""
    name = record.get("id")
    known = options.labels.get(str(name), {})
    within = record.get("labels")
    labels = {
        **{key: record[key] for key in LABELS if record.get(key) is not None},
        **(within if isinstance(within, Mapping) else {}),
        **known,
    }
    split = labels.pop("split", None) or record.get("split") or options.split
    if split not in SPLITS:
        raise UnusableError("no split" if split is None else "a split that is none of harmful and retain")
    registry = record.get("tools")
    registry = registry if isinstance(registry, str) and not registry.lstrip().startswith(("[", "{")) else None
    unread = _TAKEN if registry is None else _TAKEN | {"tools"}
    conversation = {key: value for key, value in record.items() if key not in unread}
    try:
        form = recognise(conversation, options.reading.keys, "")
    except (SourceError, RecordRefusedError) as fault:
        raise unusable(fault) from None
    chat, dropping = read_chat(conversation, form, options)
    dialogue = dialogue_of(chat, dropping, options)
    kept = {key for meaning in ("id", *_KEPT) for key in form.keys.found(meaning, conversation)}
    original = {
        key: value
        for key, value in conversation.items()
        if value is not None and (key in chat.rest or key in kept or says_nothing(value)) and key != "tools"
    }
    if name is not None:
        original["id"] = str(name)
    tools = _tools(record.get("tools"), chat.tools) or registry or options.tools
    for exchange in exchanges(dialogue, options):
        if isinstance(exchange, UnusableError):
            yield exchange
            continue
        called = PYTHON_TAG in exchange.answer
        listed = called or split == HARMFUL or record.get("tools") == []  # a sample that must say which tools it has
        yield Draft(
            source=SOURCE,
            id_source=SOURCE,
            split=split,
            messages=exchange.messages,
            assistant_raw=exchange.answer,
            tools=tools or ([] if listed else None),
            labels=labels,
            training={} if chat.weight is None else {"sample_weight": chat.weight},
            metadata={"has_tool_calls": called, **({"original": original} if original else {})},
            dropped=exchange.dropped,
        )


def _tools(written: Any, read: Sequence[Mapping[str, Any]]) -> Sequence[Any]:
    """The tools of a record in OpenAI's form; as they are written, if they say the same."""
    if isinstance(written, list) and [tool for tool in written if tool not in read and _bare(tool) not in read] == []:
        return written
    return [{"type": "function", "function": tool} for tool in read]


def _bare(tool: Any) -> Any:
    return tool.get("function") if isinstance(tool, dict) and tool.keys() == {"type", "function"} else None


def read_labels(file: Path) -> dict[str, dict[str, Any]]:
    """Reads labels: id → split and labels. Raises SourceError or RecordError for an invalid file or a duplicate id."""
    labels: dict[str, dict[str, Any]] = {}
    if not file.is_file():
        raise SourceError("the file of labels is missing", where=str(file), remedy="fix --labels")
    for where, record in json_lines(file):
        name = record.pop("id", None) if isinstance(record, dict) else None
        if not isinstance(name, str | int):
            raise ToolCallError("a line of labels needs an id", where=where, remedy="fix it")
        if str(name) in labels:
            raise ToolCallError(
                f"the id {name} is a duplicate: an earlier line has it", where=where, remedy="give each id once"
            )
        labels[str(name)] = record
    return labels
