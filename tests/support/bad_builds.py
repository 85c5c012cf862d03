"""What the tests in tests/bad_input share: small builds, what they may leave behind, and a table of bad rows."""

import dataclasses
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import rich.console

from spanloom.building.make import BuildResult
from spanloom.families.harmony.build import BuildOptions, build
from spanloom.report.progress import Mode, Progress
from support import sources

Cell = str | bytes | None
STRINGS = ("messages_json", "metadata_json", "synth_id", "language", "exercise")


def build_it(
    source: Path, out: Path, *, shards: int = 1, progress: Progress | None = None, **options: Any
) -> BuildResult:
    """A build as small as it gets: one worker, half of the ids valid, nothing rendered again."""
    settled = {"shards": shards, "workers": 1, "deep": 0, "valid_fraction": 0.5}
    return build(BuildOptions(**{"source": source, "out": out, **settled, **options}), progress)


def source_of(directory: Path, *shards: Sequence[sources.Row]) -> Path:
    return sources.write_source(directory, shards)


def assert_nothing_looks_finished(root: Path) -> None:
    assert not (root / "manifest.json").exists()
    assert not (root / "manifest.pending.json").exists()
    for index in root.rglob("*.idx"):
        assert index.with_suffix(".bin").is_file()
    for folder in ("train", "valid", "rejects"):
        assert [path for path in (root / folder).rglob("*") if ".spanloom-tmp-" in path.name] == []


def sequences(result: BuildResult) -> list[int]:
    """Documents of each shard, both splits together."""
    return [sum(split.sequences for split in shard.splits.values()) for shard in result.manifest.content.shards]


def stored_rows(root: Path, shard: int) -> dict[int, str]:
    """Source row → synth_id of every document of a shard, as its rows.parquet files say."""
    ids_by_row: dict[int, str] = {}
    for path in root.glob(f"*/shard_{shard:02d}_rows.parquet"):
        table = pq.read_table(path, columns=["row", "synth_id"])
        ids_by_row |= dict(zip(table.column("row").to_pylist(), table.column("synth_id").to_pylist(), strict=True))
    return dict(sorted(ids_by_row.items()))


def lines_to(stream: io.StringIO) -> Progress:
    return Progress(console=rich.console.Console(file=stream, width=500), mode=Mode.LINES)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@dataclasses.dataclass(frozen=True)
class BadRow:
    """`columns` replaces columns of a right row with the id `bad`; the reject must say the other two, and the id."""

    columns: dict[str, Cell]
    reason: str
    detail: str

    @property
    def synth_id(self) -> str | None:
        """What its column says, where that is a text."""
        cell = self.columns.get("synth_id", "bad")
        return cell if isinstance(cell, str) else None

    def row(self, synth_id: str = "bad") -> sources.Row:
        """The row, with the id that stands for `bad` in all its columns."""
        columns = {
            name: cell.replace('"bad"', f'"{synth_id}"') if isinstance(cell, str) else cell
            for name, cell in self.columns.items()
        }
        return {**sources.row(synth_id), **columns}


def raw(text: Cell) -> dict[str, Cell]:
    return {"messages_json": text}


def messages(*of: object) -> dict[str, Cell]:
    return raw(json.dumps({"messages": list(of)}))


def no_id(metadata: Cell) -> dict[str, Cell]:
    """No id in its column, and this in the other place."""
    return {"synth_id": None, "metadata_json": metadata}


USER = {"role": "user", "content": "Why?"}
FINAL = {"role": "assistant", "channel": "final", "content": "So."}
SAID = '{"role": "assistant", "channel": "final", "content": "So."}'
TOOL = '{"name": "f", "description": "d", "parameters": {"type": "object", "type": "string"}}'
DEVELOPER = (
    '{"role": "developer", "content": [{"type": "developer_content", '
    '"tools": {"functions": {"name": "functions", "tools": [' + TOOL + "]}}}]}"
)
NEITHER = r"synth_id is neither in its column nor in metadata_json"
NO_LIST = r'messages_json must be an object with a list under "messages"'
NOT_JSON = ("messages_json_invalid", "messages_json is not JSON: .+")
NOT_UTF8 = "a column of this row is not UTF-8"
FROM_WRAPPER = r"\w+Error: .+"


def assistant(**fields: object) -> dict[str, Cell]:
    return messages(USER, {"role": "assistant", **fields})


def twice(key: str, column: str = "messages_json") -> tuple[str, str]:
    return "duplicate_key", f"{column} holds the key '{key}' twice in one object"


def channel(name: str | None) -> tuple[str, str]:
    return "channel_unknown", rf"message 1 \(assistant\) has channel {name!r}, not analysis or final"


BAD_ROWS: dict[str, BadRow] = {
    # ids
    "id in no place": BadRow(no_id('{"language": "en"}'), "synth_id_missing", NEITHER),
    "id null, metadata null": BadRow(no_id(None), "synth_id_missing", NEITHER),
    "id null in both": BadRow(no_id('{"synth_id": null}'), "synth_id_missing", NEITHER),
    "id empty": BadRow({"synth_id": "", "metadata_json": None}, "synth_id_missing", "synth_id is empty"),
    "id empty in metadata": BadRow(no_id('{"synth_id": ""}'), "synth_id_missing", "synth_id is empty"),
    "id of another row": BadRow(
        {"metadata_json": '{"synth_id": "other"}'},
        "synth_id_mismatch",
        r"column synth_id is 'bad\S*', metadata_json says 'other'",
    ),
    "id empty here, not there": BadRow(
        {"synth_id": "", "metadata_json": '{"synth_id": "other"}'},
        "synth_id_mismatch",
        "column synth_id is '', metadata_json says 'other'",
    ),
    "id a number": BadRow(
        no_id('{"synth_id": 7}'), "synth_id_not_string", "synth_id in metadata_json is a number, not a string"
    ),
    "id a list": BadRow(
        {"metadata_json": '{"synth_id": ["bad"]}'},
        "synth_id_not_string",
        "synth_id in metadata_json is a list, not a string",
    ),
    "id with a lone surrogate": BadRow(
        no_id(r'{"synth_id": "a\ud800"}'), "not_utf8", r"synth_id 'a\\ud800' holds a lone surrogate"
    ),
    "metadata not JSON": BadRow(
        {"metadata_json": "{'synth_id': 1}"}, "metadata_json_invalid", "metadata_json is not JSON: .+"
    ),
    "metadata a list": BadRow(
        {"metadata_json": "[]"}, "metadata_json_invalid", "metadata_json is a list, not an object"
    ),
    "metadata says the id twice": BadRow(
        {"metadata_json": '{"synth_id": "other", "synth_id": "bad"}'}, *twice("synth_id", "metadata_json")
    ),
    # JSON
    "messages null": BadRow(raw(None), "messages_json_missing", "messages_json is null"),
    "messages empty text": BadRow(raw(""), *NOT_JSON),
    "messages cut short": BadRow(raw('{"messages": [' + SAID), *NOT_JSON),
    "messages with NaN": BadRow(
        raw('{"messages": [' + SAID + '], "score": NaN}'),
        "messages_json_invalid",
        "messages_json is not JSON: NaN is not JSON",
    ),
    "messages nested without end": BadRow(raw('{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}"), *NOT_JSON),
    "key twice at the top": BadRow(raw('{"messages": [], "messages": [' + SAID + "]}"), *twice("messages")),
    "key twice in a message": BadRow(raw('{"messages": [{"role": "user", ' + SAID[1:] + "]}"), *twice("role")),
    "key twice in tool parameters": BadRow(raw('{"messages": [' + DEVELOPER + ", " + SAID + "]}"), *twice("type")),
    # structure
    "a list at the top": BadRow(raw("[" + SAID + "]"), "no_messages_list", NO_LIST),
    "no messages": BadRow(raw("{}"), "no_messages_list", NO_LIST),
    "messages an object": BadRow(raw('{"messages": ' + SAID + "}"), "no_messages_list", NO_LIST),
    "messages an empty list": BadRow(messages(), "no_messages", "the list of messages is empty"),
    "message a string": BadRow(messages(USER, "So."), "message_not_object", "message 1 is a string, not an object"),
    "no assistant": BadRow(messages(USER), "no_assistant", "no message is from the assistant.*"),
    "role tool": BadRow(
        messages(USER, {"role": "tool", "content": "42"}, FINAL),
        "role_unknown",
        "message 1 has role 'tool', not one of system, developer, user, assistant",
    ),
    "role missing": BadRow(messages({"content": "Why?"}, FINAL), "role_unknown", "message 0 has role None, .+"),
    "role a list": BadRow(
        messages({"role": ["user"], "content": "Why?"}, FINAL), "role_unknown", r"message 0 has role \['user'\], .+"
    ),
    "channel commentary": BadRow(messages(USER, {**FINAL, "channel": "commentary"}, FINAL), *channel("commentary")),
    "channel missing": BadRow(assistant(content="So."), *channel(None)),
    "channel null": BadRow(assistant(channel=None, content="So."), *channel(None)),
    "channel of the user a list": BadRow(
        messages({**USER, "channel": ["final"]}, FINAL), "renderer_refused", FROM_WRAPPER
    ),
    # content
    "content of unknown type": BadRow(
        assistant(channel="final", content=[{"type": "image", "url": "x"}]), "renderer_refused", FROM_WRAPPER
    ),
    "content missing": BadRow(assistant(channel="final"), "renderer_refused", FROM_WRAPPER),
    "content null": BadRow(assistant(channel="final", content=None), "renderer_refused", FROM_WRAPPER),
    "content with a lone surrogate": BadRow(
        assistant(channel="final", content="a\ud800"), "renderer_refused", FROM_WRAPPER
    ),
    "a megabyte of spaces": BadRow(
        assistant(channel="final", content=" " * 1_000_000), "renderer_refused", "openai-harmony panicked: .+"
    ),
    # bytes
    "messages not UTF-8": BadRow(raw(b'{"messages": ["\xff"]}'), "not_utf8", "messages_json is not UTF-8"),
    "id not UTF-8": BadRow({"synth_id": b"bad\xff", "metadata_json": None}, "not_utf8", NOT_UTF8),
    "metadata not UTF-8": BadRow({"metadata_json": b'{"synth_id": "\xed\xa0\x80"}'}, "not_utf8", NOT_UTF8),
}

FINE_ROWS: dict[str, dict[str, Cell]] = {
    "id only in metadata": {"synth_id": None},
    "id only in its column": {"metadata_json": None},
    "metadata without the id": {"metadata_json": '{"language": "en"}'},
    "metadata with a null id": {"metadata_json": '{"synth_id": null}'},
    "no metadata columns": {"language": None, "exercise": None},
    "assistant alone": messages(FINAL),
    "assistant in the middle": messages(USER, FINAL, USER),
    "analysis alone": messages(USER, {**FINAL, "channel": "analysis"}),
    "more beside messages": raw('{"messages": [' + SAID + '], "note": null}'),
    "empty content": messages(USER, {**FINAL, "content": ""}),
    "special tokens as text": messages(USER, {**FINAL, "content": "<|start|>assistant<|message|>x<|end|><|return|>"}),
}


def as_unchecked_strings(binary: pa.Array) -> pa.StringArray:
    """The same bytes under the type string: neither Arrow nor Parquet looks whether they are UTF-8."""
    nulls, offsets, data = binary.buffers()
    return pa.StringArray.from_buffers(len(binary), offsets, data, nulls)


def write_cells(directory: Path, *shards: Sequence[sources.Row]) -> Path:
    """Like `sources.write_source`, but a cell may also be bytes that are no UTF-8."""
    directory.mkdir(parents=True, exist_ok=True)
    for index, rows in enumerate(shards):
        columns = {}
        for name in STRINGS:
            cells = [cell.encode() if isinstance(cell := row[name], str) else cell for row in rows]
            columns[name] = as_unchecked_strings(pa.array(cells, pa.binary()))
        pq.write_table(pa.table(columns), directory / sources.shard_name(index))
    sources.write_manifest(directory, len(shards))
    return directory
