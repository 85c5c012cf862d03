"""Datasets for a model: sources of generated conversations, and a checker that shares no code with what it checks.

In: a seed; a dataset root. Out: records in the OpenAI form; a `conversations_v1` folder; the number of runs that are
trained as transformers' rendering and prefixes say.
"""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from support.chat_sources import write_manifest, write_source
from support.mask_reference import ReferenceForm, reference_run
from tokenizers import Tokenizer

Record = dict[str, Any]

_WORDS = (
    "ship",
    "é",
    "two  spaces",
    "line\nfeed",
    "中文",
    "🙂",
    '"quoted"',
    "x" * 30,
    "a\\b",
    "7.50",
    "{braces}",
    "&lt;",
)
TOOL = {
    "name": "find_place",
    "description": "Finds a place.",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
}


def record(seed: int, *, tools: bool = True) -> Record:
    """A conversation of one to four questions: with and without reasoning, calls and a system text."""
    draw = random.Random(seed)

    def text() -> str:
        return " ".join(draw.choices(_WORDS, k=draw.randint(1, 6)))

    messages: list[Record] = [{"role": "system", "content": text()}] if draw.random() < 0.4 else []
    with_tools = tools and draw.random() < 0.5
    for _ in range(draw.randint(1, 4)):
        messages.append({"role": "user", "content": text()})
        if with_tools and draw.random() < 0.6:
            call = {"id": f"call{seed % 10**5:05d}", "type": "function"}
            called = _answer(draw, "" if draw.random() < 0.7 else text(), text)
            function = {"name": "find_place", "arguments": {"place": text()}}
            messages.append({**called, "tool_calls": [{**call, "function": function}]})
            messages.append({"role": "tool", "content": text(), "tool_call_id": call["id"], "name": "find_place"})
        messages.append(_answer(draw, text(), text))
    listed = {"tools": [{"type": "function", "function": TOOL}]} if with_tools else {}
    return {"id": f"r-{seed}", "messages": messages, **listed}


def without_reasoning(record: Record) -> Record:
    """The record for a template that knows no reasoning."""
    messages = [
        {key: value for key, value in each.items() if key != "reasoning_content"} for each in record["messages"]
    ]
    return {**record, "messages": messages}


def _answer(draw: random.Random, content: str, text: Any) -> Record:
    thought = {"reasoning_content": text()} if draw.random() < 0.5 else {}
    return {"role": "assistant", "content": content, **thought}


def stored(record: Record, **more: Any) -> dict[str, str]:
    """A record as a row of `conversations_v1`. `more`: other keys of `messages_json`."""
    messages = []
    for message in record["messages"]:
        kept = {key: value for key, value in message.items() if key not in ("reasoning_content", "tool_calls")}
        if message.get("reasoning_content"):
            kept["reasoning"] = message["reasoning_content"]
        if message.get("tool_calls"):
            kept["tool_calls"] = [
                {
                    "id": call["id"],
                    "name": call["function"]["name"],
                    "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
                }
                for call in message["tool_calls"]
            ]
        messages.append(kept)
    tools = {"tools": [each["function"] for each in record["tools"]]} if record.get("tools") else {}
    return {
        "messages_json": json.dumps({"messages": messages, **tools, **more}, ensure_ascii=False),
        "metadata_json": json.dumps({"id": record["id"]}),
        "id": record["id"],
    }


def write_conversations(
    folder: Path, shards: Sequence[Sequence[Mapping[str, str]]], *, row_group_size: int = 16
) -> Path:
    """A `conversations_v1` folder. Returns it."""
    write_source(folder, [[dict(row) for row in shard] for shard in shards], row_group_size=row_group_size)
    write_manifest(folder, len(shards), schema_version="conversations_v1")
    return folder


def documents_on_disk(root: Path) -> list[tuple[dict[str, Any], list[int], list[int], list[int]]]:
    """Row, tokens, mask and span of each document, token-aligned, read with numpy alone."""
    documents = []
    for table in sorted(root.glob("*/shard_*_rows.parquet")):
        stem = table.name.removesuffix("_rows.parquet")
        arrays = [
            np.fromfile(table.with_name(f"{stem}_{name}.bin"), dtype)
            for name, dtype in (("tokens", "<i4"), ("lossmask", "u1"), ("span", "u1"))
        ]
        begin = 0
        for row in pq.read_table(table).to_pylist():
            tokens, mask, span = (array[begin : begin + row["tokens"]].tolist() for array in arrays)
            documents.append((row, tokens, [0, *mask[:-1]], [0, *span[:-1]]))
            begin += row["tokens"]
    return documents


def runs_that_agree(root: Path, records: Sequence[Record]) -> int:
    """How many runs are trained as the reference says. Raises AssertionError at the first that is not.

    The template, tokenizer and stop tokens are those that lie in the root.
    """
    model = root / "model"
    content = json.loads((root / "manifest.json").read_text())["content"]
    template = (model / "chat_template.jinja").read_text()
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokens_by_name = json.loads((model / "tokenizer_config.json").read_text())
    named = {
        key: value["content"] if isinstance(value, dict) else value
        for key, value in tokens_by_name.items()
        if key.endswith("_token") and value
    }
    form = ReferenceForm(
        reasoning=content["config"]["form"]["reasoning"],
        arguments=content["config"]["form"]["arguments"],
        null=content["config"]["form"]["beside_calls"] == "null",
    )
    stops = set(content["config"]["stops"].values())
    by_id = {record["id"]: record for record in records}
    agreed = 0
    for row, tokens, mask, span in documents_on_disk(root):
        wanted = [0] * len(tokens)
        for run, variables in zip(row["run"], row["variables"], strict=True):
            given = {**named, **json.loads(variables)}
            reference = reference_run(by_id[row["conversation"]], run, form, template, tokenizer, stops, given)
            end = len(reference.ids)
            assert tokens[:end] == reference.ids, (row["id"], run)
            if not reference.ended:
                assert tokens[end] in stops, (row["id"], run)
                end += 1
            wanted[reference.prompt : end] = [1] * (end - reference.prompt)
            agreed += 1
        assert mask == wanted, row["id"]
        assert [int(number > 0) for number in span] == mask, row["id"]
    return agreed
