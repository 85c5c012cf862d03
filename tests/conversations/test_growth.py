"""Twice the input takes twice the work: of 30 inputs that grow, in CPU time. A square would take four times as much."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spanloom.conversations.forms.keys import key_map
from spanloom.conversations.forms.registry import read_record, recognise
from spanloom.conversations.source.folder import read_listing
from spanloom.conversations.turns import Dropping, Reading, RecordRefusedError
from spanloom.errors import SourceError
from spanloom.families.harmony.convert import chat as chats
from spanloom.families.harmony.convert.chat_input import open_chat
from spanloom.families.harmony.convert.conversion import ChatConversion, Converted
from spanloom.families.harmony.convert.preview import preview_documents
from support.nightly import drawn, nightly

TWICE = 2.4
TRIES = 5
"""Another program on the machine may slow one of two measurements: one of these must be within `TWICE`."""

KEYS = key_map([])

Work = Callable[[], object]


def reading(record: Any, **options: Any) -> Work:
    """Reads a record to its end, or to its refusal."""

    def work() -> None:
        try:
            read_record(record, recognise(record, KEYS, "file, line 1"), Reading(**options), Dropping())
        except (RecordRefusedError, SourceError):
            return

    return work


def answering(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": content, **more}]}


def under_system(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": text}, *answering("!")["messages"]]}


def tool(number: int) -> dict[str, Any]:
    properties = {"a": {"type": "string"}}
    function = {"name": f"f{number}", "description": "d", "parameters": {"type": "object", "properties": properties}}
    return {"type": "function", "function": function}


def call(number: int, arguments: Any = "{}") -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": f"f{number}", "arguments": arguments}}


def turns(count: int) -> list[dict[str, Any]]:
    return [message for _ in range(count) for message in answering("!")["messages"]]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


RECORDS: dict[str, tuple[int, Callable[[int], Work]]] = {
    "keys beside messages": (8_000, lambda n: reading({**answering("!"), **{f"k{i}": i for i in range(n)}})),
    "keys of lists, of no known form": (
        4_000,
        lambda n: reading({f"k{i}": [{"prompt": "x", "answer": ""}] for i in range(n)}),
    ),
    "keys of texts, of no known form": (10_000, lambda n: reading({f"k{i}": "text" for i in range(n)})),
    "keys of a message": (20_000, lambda n: reading(answering("!", **{f"k{i}": i for i in range(n)}))),
    "values of a call, nested": (
        10_000,
        lambda n: reading(answering(None, tool_calls=[call(i, nested(30)) for i in range(n // 30)])),
    ),
    "turns": (8_000, lambda n: reading({"messages": turns(n)})),
    "turns before a question": (
        8_000,
        lambda n: reading({"instruction": "i", "input": "", "output": "o", "history": [["a", "b"]] * n}),
    ),
    "calls": (8_000, lambda n: reading(answering(None, tool_calls=[call(i) for i in range(n)]))),
    "tools": (10_000, lambda n: reading({**answering("!"), "tools": [tool(i) for i in range(n)]})),
    "tools, and a call of each": (
        2_000,
        lambda n: reading(
            {
                **answering(None, tool_calls=[call(i, {"a": None}) for i in range(n)]),
                "tools": [tool(i) for i in range(n)],
            }
        ),
    ),
    "parts of a message": (10_000, lambda n: reading(answering([{"type": "text", "text": f"{i}"} for i in range(n)]))),
    "runs of <": (200_000, lambda n: reading(answering("<" * n))),
    "runs of </": (100_000, lambda n: reading(answering("</" * n))),
    "runs of <|": (100_000, lambda n: reading(answering("<|" * n))),
    "runs of [": (200_000, lambda n: reading(answering("[" * n))),
    "spans of reasoning": (
        60_000,
        lambda n: reading(answering("<think>" * n + "</think>" * n), think_tags=True),
    ),
    "names in brackets that are closed": (
        20_000,
        lambda n: reading(answering(" ".join(f"[/{'A' * (i % 20 + 2)}{chr(65 + i % 26)}]" for i in range(n)))),
    ),
    "tags of calls that are not closed": (60_000, lambda n: reading(answering("<tool_call>" * n), call_tags="hermes")),
    "tags of tools that are not closed": (
        2_000_000,
        lambda n: reading(under_system("<tools>" * n), call_tags="hermes"),
    ),
    "tags of parameters that are not closed": (
        60_000,
        lambda n: reading(answering("<function=f>" + "<parameter=a>" * n + "</function>"), call_tags="openhands"),
    ),
    "calls in tags": (
        4_000,
        lambda n: reading(answering('<tool_call>{"name": "f", "arguments": {}}</tool_call>' * n), call_tags="hermes"),
    ),
    "calls in brackets": (
        2_000,
        lambda n: reading(
            answering("[" + ", ".join("f(a=1)" for _ in range(n)) + "]"), call_tags="toolace", text_as_is=True
        ),
    ),
    "brackets in a value of a call": (
        100_000,
        lambda n: reading(answering("[f(a='" + ")" * n + "')]"), call_tags="toolace", text_as_is=True),
    ),
    "lines that begin like JSON": (
        30_000,
        lambda n: reading(
            {"messages": [{"role": "user", "content": "?"}, {"role": "function_call", "content": "\n[{" * n}]}
        ),
    ),
}


def took(work: Work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def check_growth(make: Callable[[int], Work], size: int) -> None:
    ratios = []
    for _ in range(TRIES):
        once, twice = make(size), make(2 * size)
        ratios.append(min(took(twice), took(twice)) / max(1e-3, min(took(once), took(once))))
        if ratios[-1] <= TWICE:
            return
    raise AssertionError(f"twice the input takes {min(ratios):.2f} times the CPU time, in the best of {TRIES} tries")


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_grows(name: str) -> None:
    size, make = RECORDS[name]
    check_growth(make, size)


def conversations(path: Path, rejects: str = "0") -> Iterator[Any]:
    conversion = ChatConversion(max_rejects=rejects)
    return chats.conversations(open_chat([path], conversion), conversion)


def written(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("kind", ["lines", "rejects", "files in a folder"])
def test_files_that_grow(kind: str, tmp_path: Path) -> None:
    def make(count: int) -> Work:
        folder = tmp_path / f"{kind}-{count}"
        if folder.exists():
            return lambda: sum(1 for _ in conversations(folder, "100%"))
        folder.mkdir()
        good, bad = {"id": "a", **answering("!")}, {"id": "b", "messages": [{"role": "nobody", "content": "?"}]}
        if kind == "files in a folder":
            for number in range(count):
                written(folder / f"{number:05d}.jsonl", [good])
        else:
            written(folder / "all.jsonl", [good] + [good if kind == "lines" else bad] * (count - 1))
        return lambda: sum(1 for _ in conversations(folder, "100%"))

    check_growth(make, {"lines": 4_000, "rejects": 4_000, "files in a folder": 200}[kind])


def test_shards_that_grow(tmp_path: Path) -> None:
    def make(count: int) -> Work:
        folder = tmp_path / f"{count}"
        folder.mkdir(exist_ok=True)
        shards = [
            {"path": f"synth_harmony_shard_{number:02d}.parquet", "rows": 1, "bytes": 1, "sha256": "0" * 64}
            for number in range(count)
        ]
        storage = {"format": "parquet", "glob": "synth_harmony_shard_*.parquet", "total_rows": count, "shards": shards}
        manifest = {"schema_version": "synth_harmony_v1", "storage": storage}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        assert len(read_listing(folder).shards) == count
        return lambda: read_listing(folder)

    check_growth(make, 4_000)


@pytest.mark.parametrize("most", [1, nightly(3)])
def test_the_preview_of_a_long_first_conversation(most: int, asset: Path, tmp_path: Path) -> None:
    def make(count: int) -> Work:
        path = written(tmp_path / f"{count}.jsonl", [{"messages": turns(count)}])
        first = next(each for each in conversations(path) if isinstance(each, Converted))
        documents, total = preview_documents(first, asset, most)
        assert (len(documents), total) == (most, count)
        return lambda: preview_documents(first, asset, most)

    check_growth(make, drawn(2_000, 800))
