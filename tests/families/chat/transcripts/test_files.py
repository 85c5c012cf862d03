"""Transcripts come back from files as they were written, whole or not at all; what cannot be read is named."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.errors import ChatError, ConflictError, RecordError, SourceError
from spanloom.families.chat.transcripts.files import (
    TranscriptWriter,
    is_line_based,
    open_span,
    read_records,
    read_transcripts,
)

TEXTS = ["<|USER|>a\nb\u2028c<|END|>", "", " \t", "ü日本🎉", "line\\nfeed"]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".txt"])
def test_what_is_written_is_read_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"transcripts{suffix}"
    wanted = [text.replace("\n", "\\n") if is_line_based(path) else text for text in TEXTS * 2000]
    with TranscriptWriter(path) as writer:
        for text in wanted:
            writer.write(text)
        entry = writer.publish()
    assert [text for _, text in read_transcripts(path)] == wanted
    assert entry["transcripts"] == len(wanted)
    assert entry["bytes"] == path.stat().st_size
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".txt"])
def test_what_is_not_finished_leaves_nothing_and_nothing_is_overwritten(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"transcripts{suffix}"
    with pytest.raises(RuntimeError, match="stopped"), TranscriptWriter(path) as writer:
        writer.write("a")
        raise RuntimeError("stopped")
    assert list(tmp_path.iterdir()) == []

    def write(text: str) -> None:
        with TranscriptWriter(path) as writer:
            writer.write(text)
            writer.publish()

    write("a")
    write("a")  # the same again is no conflict
    with pytest.raises(ConflictError, match="another result of this command"):
        write("b")
    assert [text for _, text in read_transcripts(path)] == ["a"]
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_nothing_written_is_an_empty_file_that_is_read_back(tmp_path: Path) -> None:
    for suffix in (".parquet", ".jsonl", ".txt"):
        with TranscriptWriter(tmp_path / f"empty{suffix}") as writer:
            writer.publish()
        assert list(read_transcripts(tmp_path / f"empty{suffix}")) == []


def test_lines_hold_one_line_and_endings_are_known(tmp_path: Path) -> None:
    with pytest.raises(ChatError, match="more than one line"), TranscriptWriter(tmp_path / "x.txt") as writer:
        writer.write("a\nb")
    with pytest.raises(ChatError, match=r"written as \.parquet, \.jsonl, \.txt"):
        TranscriptWriter(tmp_path / "x.csv")
    assert list(tmp_path.iterdir()) == []


def test_transcripts_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"fine\r\n\xff\n\nlast")
    with pytest.raises(ValueError, match=r"not UTF-8(?s:.*)a\.txt, line 2"):
        list(read_transcripts(tmp_path / "a.txt"))
    errors: list[RecordError] = []
    assert [text for _, text in read_transcripts(tmp_path / "a.txt", unreadable=errors.append)] == ["fine", "", "last"]
    assert len(errors) == 1

    (tmp_path / "b.jsonl").write_text('{"text": "a"}\n{"text": null}\n{"text": 3}\n{"other": "x"}\n[1]\n')
    errors.clear()
    assert [text for _, text in read_transcripts(tmp_path / "b.jsonl", unreadable=errors.append)] == ["a", None]
    assert [error.where for error in errors] == [f"{tmp_path / 'b.jsonl'}, line {number}" for number in (3, 4, 5)]

    pq.write_table(pa.table({"text": ["a", None], "number": [1, 2]}), tmp_path / "c.parquet")
    assert [text for _, text in read_transcripts(tmp_path / "c.parquet")] == ["a", None]
    pq.write_table(pa.table({"body": ["a", None], "number": [1, 2]}), tmp_path / "c.parquet")
    with pytest.raises(SourceError, match="no column text; there are body, number"):
        list(read_transcripts(tmp_path / "c.parquet"))
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "c.parquet")
    with pytest.raises(SourceError, match="the column text is int64, not text"):
        list(read_transcripts(tmp_path / "c.parquet"))


def test_bytes_in_parquet_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    raw = pa.array([b"fine", b"\xff\xfe", b"too"], pa.binary())
    pq.write_table(pa.table({"text": pa.Array.from_buffers(pa.string(), 3, raw.buffers())}), tmp_path / "a.parquet")
    errors: list[RecordError] = []
    found = [text for _, text in read_transcripts(tmp_path / "a.parquet", unreadable=errors.append)]
    assert found == ["fine", "too"]
    assert [error.where for error in errors] == [f"{tmp_path / 'a.parquet'}, row 2"]


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".jsonl.zst"])
def test_packed_lines_are_read_like_others(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"transcripts{suffix}"
    with pa.CompressedOutputStream(str(path), "gzip" if suffix.endswith("gz") else "zstd") as packed:
        packed.write("".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode())
    assert [text for _, text in read_transcripts(path)] == TEXTS
    assert list(read_records(path)) == TEXTS


def test_records_that_cannot_be_read_keep_their_number_in_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "transcripts.jsonl"
    path.write_text('{"text": "a"}\n{\n\n{"text": null}\n{"text": "b"}\n{"other": 1}\n')
    assert list(read_records(path, on_error="skip")) == ["a", None, None, "b", None]
    with pytest.raises(RecordError, match=r"(?s)not JSON.*transcripts\.jsonl, line 2"):
        list(read_records(path))
    path.write_text('{"text": "a"}\n{"text": null}\n')
    with pytest.raises(RecordError, match=r"(?s)record 11 is null.*transcripts\.jsonl, line 2"):
        list(read_records(path, first=10))


# Records of .txt files of others


PAIR = "<|USER|>Hi\nthere<|END|><|ASSISTANT|>Hello<|END|>"


@pytest.mark.parametrize(
    ("records", "text", "wanted"),
    [
        ("eos", f"{PAIR}<|EOS|>{PAIR}", [PAIR, PAIR]),
        ("eos", f"\n{PAIR}\n<|EOS|>\n\n  {PAIR}\n<|EOS|>\n", [PAIR, PAIR]),
        ("eos", "<|USER|>a<|END|>\n\n<|ASSISTANT|> b\n <|END|>\n", ["<|USER|>a<|END|><|ASSISTANT|> b\n <|END|>"]),
        ("eos", "<|USER|>a<|END|> text <|ASSISTANT|>b<|END|>", ["<|USER|>a<|END|> text <|ASSISTANT|>b<|END|>"]),
        ("file", f"{PAIR}\n<|EOS|>\n{PAIR}\n", [f"{PAIR}<|EOS|>{PAIR}"]),
        ("eos", "\n \n<|EOS|>\n", []),
        ("file", "", []),
    ],
)
def test_a_record_may_have_any_number_of_lines(tmp_path: Path, records: Any, text: str, wanted: list[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_text(text)
    assert [text for _, text in read_transcripts(path, records=records)] == wanted
    assert list(read_records(path, records=records, closed=True)) == wanted


def test_a_record_stands_at_its_first_line_and_a_torn_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(f"{PAIR}<|EOS|>\n\n{PAIR}\n".encode() + b"\xff<|EOS|>\n" + PAIR.encode())
    with pytest.raises(ChatError, match=r"not UTF-8(?s:.*)line 6"):
        list(read_transcripts(path, records="eos"))
    errors: list[Any] = []
    found = list(read_transcripts(path, unreadable=errors.append, records="eos"))
    assert [where for where, _ in found] == [f"{path}, line 1", f"{path}, line 7"]
    assert len(errors) == 1


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        (PAIR, None),
        (f"{PAIR}<|EOS|>{PAIR}", None),
        ("text alone, <|END|> too<|PAD|>", None),
        ("<|USER|>a", "<|USER|>"),
        ("<|USER|>a<|PAD|><|END|><|ASSISTANT|>b", "<|ASSISTANT|>"),
        ("<|SYSTEM|>a<|USER|>b<|END|>", "<|SYSTEM|>"),
        ("<|USER|>a<|EOS|>b<|END|>", "<|USER|>"),
    ],
)
def test_a_span_that_a_record_does_not_close_is_found(tmp_path: Path, text: str, opened: str | None) -> None:
    assert open_span(text) == opened
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": PAIR}) + "\n" + json.dumps({"text": text}) + "\n")
    if opened is None:
        assert list(read_records(path, closed=True)) == [PAIR, text]
        return
    with pytest.raises(ChatError, match=re.escape(f"record 1 opens a span with {opened}") + "(?s:.*)--records line"):
        list(read_records(path, closed=True))
    assert list(read_records(path, closed=True, on_error="skip")) == [PAIR, None]
    assert list(read_records(path)) == [PAIR, text]
