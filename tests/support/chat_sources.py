"""Small `harmony_conversations_v1` sources for tests: conversations in, a folder with shards and a manifest out."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.conversations.source.format import CONVERSATIONS
from spanloom.conversations.source.manifest import CONVERSATIONS_COLUMNS, CONVERSATIONS_GLOB, CONVERSATIONS_V1
from support.sources import storage

Message = dict[str, Any]
Row = dict[str, str]

TOOLS = {
    "functions": {
        "name": "functions",
        "tools": [
            {
                "name": "get_weather",
                "description": "The weather in a city.",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            }
        ],
    }
}


def system(**fields: Any) -> Message:
    """A system message without an identity, as a converter writes one."""
    content = {"model_identity": None, "knowledge_cutoff": None, "reasoning_effort": "Medium", **fields}
    return {"role": "system", "content": [{"type": "system_content", **content}]}


def developer(instructions: str | None = "Be brief.", tools: Any = None) -> Message:
    content = {"type": "developer_content", "instructions": instructions, **({"tools": tools} if tools else {})}
    return {"role": "developer", "content": [content]}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def analysis(text: str) -> Message:
    return {"role": "assistant", "channel": "analysis", "content": text}


def final(text: str) -> Message:
    return {"role": "assistant", "channel": "final", "content": text}


def preamble(text: str) -> Message:
    return {"role": "assistant", "channel": "commentary", "content": text}


def call(arguments: str, name: str = "get_weather") -> Message:
    return {
        "role": "assistant",
        "channel": "commentary",
        "recipient": f"functions.{name}",
        "content_type": "<|constrain|>json",
        "content": arguments,
    }


def result(text: str, name: str = "get_weather") -> Message:
    return {
        "role": "tool",
        "name": f"functions.{name}",
        "recipient": "assistant",
        "channel": "commentary",
        "content": text,
    }


def three_turns(word: str = "") -> list[Message]:
    """A question, a question that takes a tool, a question: reasoning before every answer and every call."""
    return [
        system(),
        developer(tools=TOOLS),
        user(f"Hello {word}?"),
        analysis("A greeting."),
        final("Hello!"),
        user("Weather in Oslo?"),
        analysis("Look it up."),
        preamble("One moment."),
        call('{"city":"Oslo"}'),
        result('{"celsius":4}'),
        analysis("Four degrees."),
        final("It is 4 °C."),
        user("And is that cold?"),
        analysis("It depends."),
        final("Take a coat."),
    ]


def plain(word: str = "") -> list[Message]:
    """Without reasoning, tools, system message: plain fine-tuning."""
    return [user(f"Say {word}."), final(f"{word}!")]


def row(name: str, messages: Sequence[Message]) -> Row:
    return {
        "messages_json": json.dumps({"messages": list(messages)}),
        "metadata_json": json.dumps({"id": name}),
        "id": name,
    }


def rows(count: int, prefix: str = "c") -> list[Row]:
    """`count` right rows, of three turns and of one in turns."""
    shapes = (three_turns, plain)
    return [row(f"{prefix}-{index}", shapes[index % 2](str(index))) for index in range(count)]


def write_source(directory: Path, shards: Sequence[Sequence[Row]], *, row_group_size: int = 4096) -> Path:
    """Writes the shards and a manifest that fits them. Returns the folder."""
    directory.mkdir(parents=True, exist_ok=True)
    for index, shard in enumerate(shards):
        table = pa.Table.from_pylist(list(shard), schema=CONVERSATIONS_COLUMNS)
        pq.write_table(table, directory / CONVERSATIONS.shard_name(index), row_group_size=row_group_size)
    write_manifest(directory, len(shards))
    return directory


def write_manifest(directory: Path, shards: int, **changes: Any) -> None:
    """Writes a manifest for the shards as they lie there now; `changes` replaces its top-level keys."""
    names = [CONVERSATIONS.shard_name(index) for index in range(shards)]
    stored = storage(directory, names, CONVERSATIONS_GLOB)
    manifest = {
        "schema_version": CONVERSATIONS_V1,
        "conversion": {
            "form": "test",
            "options": {},
            "model_identity": None,
            "conversation_start_date": None,
            "knowledge_cutoff": None,
            "reasoning_effort": "Medium",
            "developer": None,
            "rows_read": stored["total_rows"],
            "rows_written": stored["total_rows"],
            "skipped": {},
            "dropped": {},
            "sources": [],
        },
        "storage": stored,
        **changes,
    }
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=2))
