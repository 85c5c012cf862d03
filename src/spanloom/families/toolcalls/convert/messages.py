"""Your own messages: conversations in OpenAI's format whose last assistant turn is the answer.

In: a record with `messages` (role, content, `tool_calls`), and its split and labels: as keys of the record, in its
`labels`, or in a file by id. Out: the last assistant turn with its context; with `turns="all"` each assistant turn.

    {"id": "a1", "messages": […], "split": "harmful", "expected_tool": "f", "observed_tool": "g"}
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spanloom.errors import SourceError
from spanloom.families.toolcalls.convert.drafts import Draft, Options
from spanloom.families.toolcalls.format.control import PYTHON_TAG
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.format.tables import SPLITS
from spanloom.families.toolcalls.format.turns import UnusableError, answers_of, turns
from spanloom.records.json_lines import json_lines

SOURCE = "own"
LABELS = ("expected_tool", "simulated_tool", "observed_tool", "is_flip_success", "category", "attack_type")
"""Keys of a record that are labels; all others but `id`, `messages`, `split`, `labels` and `tools` are metadata."""

_TAKEN = frozenset({*LABELS, "id", "messages", "split", "labels", "tools"})


def drafts(record: Mapping[str, Any], options: Options) -> Iterator[Draft]:
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
    messages = turns(record.get("messages"))
    answers = answers_of(messages)
    tools = record.get("tools")
    original = {key: value for key, value in record.items() if key not in _TAKEN and value is not None}
    if name is not None:
        original["id"] = str(name)
    for answer in answers if options.turns == "all" else answers[-1:]:
        raw = messages[answer]["content"]
        yield Draft(
            source=SOURCE,
            id_source=SOURCE,
            split=split,
            messages=messages[:answer],
            assistant_raw=raw,
            tools=tools if isinstance(tools, str | list) else options.tools,
            labels=labels,
            metadata={"has_tool_calls": PYTHON_TAG in raw, **({"original": original} if original else {})},
        )


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
