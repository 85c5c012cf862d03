"""Columns of tables that JSON cannot hold are left out and named; text is text however it is stored."""

import base64
import json
import zlib
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from spanloom.conversations.source.folder import first_rows, open_source
from spanloom.errors import SourceError
from spanloom.families.chat.transcripts.files import read_transcripts
from spanloom.families.harmony.convert.chat import convert_chat
from spanloom.families.harmony.convert.chat_input import open_chat
from spanloom.families.harmony.convert.conversion import ChatConversion
from spanloom.families.traces.store.source import read_values
from spanloom.records.record_files import find_record_files, read_records, unread_columns
from spanloom.storage import sha256_file

ROWS = 600  # more than a batch
CHATS = [[{"role": "user", "content": f"Hi {n}"}, {"role": "assistant", "content": f"ü {n}"}] for n in range(ROWS)]
UNHELD: dict[str, pa.Array] = {
    "binary": pa.array([b"\xff"] * ROWS),
    "fixed": pa.array([b"\xff" * 16] * ROWS, pa.binary(16)),
    "decimal": pa.array([Decimal("1.20")] * ROWS, pa.decimal128(10, 2)),
    "duration": pa.array([timedelta(seconds=1)] * ROWS),
    "nanoseconds": pa.array([1_700_000_000_000_000_001] * ROWS, pa.timestamp("ns")),
    "time": pa.array([1] * ROWS, pa.time64("ns")),
    "map": pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
    "images": pa.array([[{"bytes": b"\xff", "path": "a.png"}]] * ROWS),
    "codes": pa.array([[b"\xff"]] * ROWS),
    "dictionary": pa.array([b"\xff"] * ROWS).dictionary_encode(),
}


def as_parquet(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def as_arrow(path: Path, table: pa.Table) -> Path:
    with pa.ipc.new_file(path.with_suffix(".arrow"), table.schema) as writer:
        writer.write_table(table)
    return path.with_suffix(".arrow")


WRITERS = [as_parquet, as_arrow]
Write = Callable[[Path, pa.Table], Path]


ENCODERS = [lambda texts: texts.cast(pa.string_view()), lambda texts: texts.dictionary_encode()]


def converted(path: Path, out: Path, workers: int = 1, **options: Any) -> tuple[int, Any, Any, Any]:
    """Rows written, rows refused, values dropped, metadata."""
    conversion = ChatConversion(**options)
    done = convert_chat(chat=open_chat([path], conversion), out=out, conversion=conversion, workers=workers)
    names = ("rows_written", "skipped", "dropped", "metadata")
    return tuple(done["conversion"][name] for name in names)  # type: ignore[return-value]


def rows_of(path: Path) -> list[Any]:
    (file,) = find_record_files([path])
    return [row for _, row in read_records(file)]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("name", UNHELD)
def test_a_column_that_json_cannot_hold_is_named_counted_and_harms_no_row(
    tmp_path: Path, name: str, write: Write
) -> None:
    path = write(tmp_path / "chats", pa.table({"messages": CHATS, name: UNHELD[name], "source": ["web"] * ROWS}))
    chat = open_chat([path], ChatConversion())
    assert dict(chat.unread_columns) == {name: str(UNHELD[name].type)} or write is as_parquet
    assert set(chat.unread_columns) == {name}
    assert any(name in line for line in chat.described())
    assert converted(path, tmp_path / "out") == (ROWS, {}, {name: ROWS}, {"source": ROWS})


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_count_them_too(tmp_path: Path, workers: int) -> None:
    path = as_parquet(tmp_path / "chats", pa.table({"messages": CHATS, "blob": UNHELD["binary"]}))
    assert converted(path, tmp_path / "out", workers, rows_per_shard=250)[2] == {"blob": ROWS}


@pytest.mark.parametrize(
    "options", [{"metadata": ("blob",)}, {"maps": ("weight=blob",)}, {"maps": ("query=text+blob",)}], ids=str
)
def test_a_column_that_an_option_names_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    path = as_parquet(tmp_path / "chats", pa.table({"messages": CHATS, "blob": UNHELD["binary"]}))
    with pytest.raises(SourceError, match="an option names the column blob, which is binary"):
        open_chat([path], ChatConversion(**options))


def test_messages_in_bytes_are_named_as_what_was_not_read(tmp_path: Path) -> None:
    path = as_parquet(tmp_path / "chats", pa.table({"messages": pa.array([b"[]"]), "n": [1]}))
    with pytest.raises(SourceError, match=r"columns not read, JSON has no such values: messages \(binary\)"):
        open_chat([path], ChatConversion())
    path = as_parquet(tmp_path / "alone", pa.table({"messages": pa.array([b"[]"])}))
    with pytest.raises(SourceError, match=r"messages \(binary\)"):
        open_chat([path], ChatConversion())


NOT_OF_JSON: dict[str, pa.Array] = {
    "infinite": pa.array([0.5, float("-inf"), None]),
    "within a struct": pa.array([{"a": [0.5]}, {"a": [float("inf")]}, None]),
    "far day": pa.array([0, 2**30, None], pa.date32()),
    "far time": pa.array([0, 2**62, None], pa.timestamp("us")),
    "torn text": pa.array([b"a", b"\xff", None]).view(pa.string()),
    "torn JSON": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "{", None])),
}
"""Three values each; JSON or Python has not the second."""


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("name", NOT_OF_JSON)
def test_a_value_that_json_lacks_refuses_its_row_only_if_an_option_names_the_column(
    tmp_path: Path, name: str, write: Write
) -> None:
    path = write(tmp_path / "chats", pa.table({"messages": CHATS[:3], name: NOT_OF_JSON[name]}))
    assert converted(path, tmp_path / "out") == (3, {}, {name: 1}, {name: 1})
    assert converted(path, tmp_path / "named", metadata=(name,), max_rejects="1")[:3] == (2, {"unreadable": 1}, {})


def test_times_in_a_zone_that_python_does_not_know(tmp_path: Path) -> None:
    times = pa.array([1, 2, 3], pa.timestamp("us", "Mars/Nix"))
    path = as_parquet(tmp_path / "chats", pa.table({"messages": CHATS[:3], "at": times}))
    assert converted(path, tmp_path / "out") == (3, {}, {"at": 3}, {})


def test_bytes_within_messages_refuse_their_row_alone(tmp_path: Path) -> None:
    """Nothing of a message is left out silently."""
    shown = [[{**message, "image": None} for message in messages] for messages in CHATS[:3]]
    shown[1][0]["image"] = b"\xff"
    path = as_parquet(tmp_path / "chats", pa.table({"messages": shown}))
    assert converted(path, tmp_path / "out", max_rejects="1")[:3] == (2, {"unreadable": 1}, {})


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("kind", [pa.list_, pa.large_list, pa.list_view])
def test_nanoseconds_within_messages(tmp_path: Path, write: Write, kind: Callable[..., pa.DataType]) -> None:
    message = pa.struct({"role": pa.string(), "content": pa.string(), "at": pa.timestamp("ns")})
    when = 1_700_000_000_000_000_001  # 2023-11-14 22:13:20 UTC, and a nanosecond
    chats = [[{**each, "at": when} for each in messages] for messages in CHATS]
    if kind is pa.list_view:
        chats = [[{**each, "at": when - 1} for each in messages] for messages in CHATS]
    table = pa.table({"messages": pa.array(chats, kind(message))})
    read = rows_of(write(tmp_path / "chats", table))
    assert [[each["content"] for each in row["messages"]] for row in read] == [
        [each["content"] for each in messages] for messages in CHATS
    ]
    if kind is not pa.list_view:
        assert {each["at"] for row in read for each in row["messages"]} == {"2023-11-14 22:13:20.000000001"}


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("encode", ENCODERS)
def test_text_in_views_and_dictionaries_is_text(
    tmp_path: Path, write: Write, encode: Callable[[pa.Array], pa.Array]
) -> None:
    texts = [f"<|USER|>ü {n}<|END|>" if n % 7 else None for n in range(ROWS)]
    assert rows_of(write(tmp_path / "rows", pa.table({"text": encode(pa.array(texts))}))) == [
        {"text": text} for text in texts
    ]


def test_categories_of_polars_are_text(tmp_path: Path) -> None:
    """A dictionary of views, which pyarrow cannot cast."""
    views = pa.array(["<|USER|>ü", None, "never used", "long enough for no inline view"]).cast(pa.string_view())
    indices = pa.array([3, None, 0, 1] * 200, pa.uint32())
    none = pa.array([None] * 800, pa.uint32())
    table = pa.table(
        {name: pa.DictionaryArray.from_arrays(at, views) for name, at in (("text", indices), ("none", none))}
    )
    texts = ["long enough for no inline view", None, "<|USER|>ü", None] * 200
    assert rows_of(as_arrow(tmp_path / "rows", table)) == [{"text": text, "none": None} for text in texts]


INTEGER_OF_128_BITS = (
    "eNptUU1PwkAQ3W5Mw8F4YjfdpIdeJBAaLIum1NtACBKT2hLjx7FYFohICUVQT/4cf6aziwdNfMnO13tvDjsJjNuMMJ/5PqNY2MwmhBJ8lkX+"
    "gp2IU2ILx1owwimPeVyrEOHyCou5pqnwr442RbFlFLXMYxSlqBSucGt37r92/mmxKsGG1io8rhLc5xzDeHxzf1k+zacvmfNlnWl0HgEx0KG7"
    "w/4t/enN6BqghL7JKTQT5Pd7PR8BzH7rTAg1/2HmJgzBUGhHc28EPZMHeh/C7AFIbtHUPNTpwdpP9b7ZoR8+A3HipFhmm9Krr9+382LV8HbT"
    "TbkoVp5stVuBV5+8Lpa5F6ookJO8o1QuQ6W6Mm+fy7CbBVEmowulpAqzaR7JhnBd/NcHvEOCV/oG2VxZqg=="
)


def test_a_type_that_pyarrow_does_not_read_is_no_torn_file(tmp_path: Path) -> None:
    """One row of an integer of 128 bits, as Polars writes it."""
    (tmp_path / "a.parquet").write_bytes(zlib.decompress(base64.b64decode(INTEGER_OF_128_BITS)))
    with pytest.raises(SourceError, match=r"cannot read: Integers .*\n.*\n.*cast that column"):
        rows_of(tmp_path / "a.parquet")


@pytest.mark.parametrize("encode", ENCODERS)
def test_every_reader_of_text_takes_views_and_dictionaries(
    tmp_path: Path, encode: Callable[[pa.Array], pa.Array]
) -> None:
    texts = pa.array([f"<|USER|>ü {n}<|END|>" for n in range(ROWS)])
    path = as_parquet(tmp_path / "transcripts", pa.table({"text": encode(texts)}))
    assert [text for _, text in read_transcripts(path)] == texts.to_pylist()
    traces = pa.table({"query": encode(texts), "steps": [["a", "b"]] * ROWS, "answer": encode(texts)})
    read = [values[0]["query"] for _, _, values in read_values(as_parquet(tmp_path / "traces", traces), "traces")]
    assert read == texts.to_pylist()


@pytest.mark.parametrize("encode", ENCODERS)
def test_a_source_written_again_by_another_program_is_read(
    tmp_path: Path, encode: Callable[[pa.Array], pa.Array]
) -> None:
    """polars writes views, pandas dictionaries of categories."""
    chats = as_parquet(tmp_path / "chats", pa.table({"messages": CHATS}))
    converted(chats, tmp_path / "source")
    (before,) = open_source(tmp_path / "source").shards
    wanted = [text for rows in first_rows(before) for text in rows.messages_json.to_pylist()]
    table = pq.read_table(before.path)
    again = pa.table(
        {name: encode(table.column(name).combine_chunks().cast(pa.string())) for name in table.column_names}
    )
    pq.write_table(again, before.path)
    manifest = json.loads((tmp_path / "source/manifest.json").read_bytes())
    manifest["storage"]["shards"][0] |= {"bytes": before.path.stat().st_size, "sha256": sha256_file(before.path)}
    (tmp_path / "source/manifest.json").write_text(json.dumps(manifest))
    (shard,) = open_source(tmp_path / "source").shards
    batches = list(first_rows(shard))
    assert [text for rows in batches for text in rows.messages_json.to_pylist()] == wanted
    assert [text for rows in batches for text in rows.columns["id"]] == table.column("id").to_pylist()


def test_text_that_is_not_utf8_refuses_its_row_alone(tmp_path: Path) -> None:
    torn = pa.array([b"a", b"\xff", b"c"]).view(pa.string())
    for name, column in {"view": torn.cast(pa.string_view()), "dictionary": torn.dictionary_encode()}.items():
        (file,) = find_record_files([as_parquet(tmp_path / name, pa.table({"text": column}))])
        faults: list[str] = []
        read = [row for _, row in read_records(file, lambda error, faults=faults: faults.append(str(error.where)))]
        assert read == [{"text": "a"}, {"text": "c"}]
        assert faults == [f"{file.path}, row 2"]


def test_other_files_have_no_such_columns(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    (file,) = find_record_files([tmp_path / "a.jsonl"])
    assert unread_columns(file) == {}
