"""JSON Lines are split at LF and nowhere else, and what cannot be read is named by file and line, packed or not."""

import contextlib
import gzip
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.errors import RecordError, SourceError
from spanloom.records.json_lines import RepeatedKeys, json_lines, lines

RECORDS = [{"n": number, "text": "line\u2028or paragraph\u2029, ünïcode " * 40} for number in range(500)]


def as_lines(records: list[Any]) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


PACKED: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".zst": zstd}


def file(tmp_path: Path, data: bytes, suffix: str = "") -> Path:
    path = tmp_path / f"records.jsonl{suffix}"
    path.write_bytes(data)
    return path


def values(path: Path, repeated_keys: RepeatedKeys = "last") -> list[Any]:
    return [value for _, value in json_lines(path, repeated_keys=repeated_keys)]


def test_lines_before_a_damaged_end_come_first_where_keys_are_to_be_unique(tmp_path: Path) -> None:
    """Their quotes are counted together, some of them before the file is found to end early."""
    packed = gzip.compress(as_lines(RECORDS))
    path = file(tmp_path, packed[:-400], ".gz")
    before: list[Any] = []
    with pytest.raises(SourceError, match="unpacked"):
        for _, value in json_lines(path, repeated_keys="refuse"):
            before.append(value)
    assert before == RECORDS[: len(before)]
    assert len(before) == len(list(_lines_until_damaged(path))) > 0


def _lines_until_damaged(path: Path) -> Iterator[bytes]:
    with contextlib.suppress(SourceError):
        yield from (line for _, line in lines(path))


class TestLines:
    @pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
    def test_a_line_without_end_is_refused_by_its_number(
        self, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is packed is unpacked no further than the longest line."""
        monkeypatch.setattr("spanloom.records.json_lines.LONGEST_LINE", 1 << 20)
        longest = b" " * (1 << 20)
        path = file(tmp_path, PACKED.get(suffix, bytes)(b"1\n" + longest[1:] + b"\n" + longest * 100), suffix)
        read = lines(path)
        assert [len(next(read)[1]) for _ in range(2)] == [1, (1 << 20) - 1]
        with pytest.raises(SourceError, match=r"within 1,048,576 bytes(?s:.*)line 3"):
            next(read)

    @pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r"])
    @pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
    def test_no_character_but_lf_ends_a_line(self, tmp_path: Path, character: str, suffix: str) -> None:
        raw = f"a{character}b\nc{character}\r\nd".encode()
        path = file(tmp_path, PACKED.get(suffix, bytes)(raw), suffix)
        assert [line.decode() for _, line in lines(path)] == [f"a{character}b", f"c{character}", "d"]

    @pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85"])
    def test_such_characters_stay_in_the_strings_of_records(self, tmp_path: Path, character: str) -> None:
        records = [{"text": f"one{character}two"}, {"text": character}]
        assert values(file(tmp_path, as_lines(records))) == records

    @pytest.mark.parametrize(
        ("raw", "expected"),
        [
            (b"", []),
            (b"\n", [b""]),
            (b"a", [b"a"]),
            (b"a\n", [b"a"]),
            (b"a\n\n", [b"a", b""]),
            (b"a\r\nb\r\n", [b"a", b"b"]),
            (b"a\r\r\n", [b"a\r"]),  # one CR belongs to the end of the line
            (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", [b"a", b"\xef\xbb\xbfb"]),  # a mark at the beginning alone
        ],
    )
    def test_where_lines_end(self, tmp_path: Path, raw: bytes, expected: list[bytes]) -> None:
        assert [line for _, line in lines(file(tmp_path, raw))] == expected

    def test_places_count_from_one_and_count_blank_lines(self, tmp_path: Path) -> None:
        path = file(tmp_path, b'\n{"a": 1}\n  \t\r\n{"a": 2}')
        assert list(json_lines(path)) == [(f"{path}, line 2", {"a": 1}), (f"{path}, line 4", {"a": 2})]

    def test_a_byte_order_mark_is_passed_over(self, tmp_path: Path) -> None:
        assert values(file(tmp_path, b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n')) == [{"a": 1}, {"a": 2}]

    @given(st.lists(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=6)))
    def test_what_was_written_is_read(self, tmp_path_factory: pytest.TempPathFactory, records: list[Any]) -> None:
        path = file(tmp_path_factory.mktemp("records"), as_lines(records))
        assert values(path) == values(path, "refuse") == records


class TestPacked:
    @pytest.mark.parametrize("suffix", PACKED)
    def test_several_members_are_one_file_also_where_a_line_goes_on_in_the_next(
        self, tmp_path: Path, suffix: str
    ) -> None:
        raw, pack = as_lines(RECORDS), PACKED[suffix]
        for cut in (0, 7, raw.index(b"\n") + 1, len(raw) // 2, len(raw)):
            path = file(tmp_path, pack(raw[:cut]) + pack(raw[cut:]), suffix)
            assert values(path) == RECORDS

    def test_a_frame_that_holds_no_data_is_passed_over(self, tmp_path: Path) -> None:
        skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"note"
        raw = as_lines(RECORDS)
        path = file(tmp_path, skippable + zstd(raw[:100]) + skippable + zstd(raw[100:]) + skippable, ".zst")
        assert values(path) == RECORDS

    @pytest.mark.parametrize("suffix", PACKED)
    def test_what_the_command_line_tools_write_is_read(self, tmp_path: Path, suffix: str) -> None:
        tool = {".gz": "gzip", ".zst": "zstd"}[suffix]
        plain = file(tmp_path, as_lines(RECORDS))
        try:
            subprocess.run([tool, "-q", "-k", plain], check=True)
        except FileNotFoundError:
            pytest.skip(f"{tool} is not on this machine")
        assert values(plain.with_name(f"{plain.name}{suffix}")) == RECORDS

    @pytest.mark.parametrize("suffix", PACKED)
    @pytest.mark.parametrize("members", [1, 2])
    def test_a_file_that_was_cut_is_an_error_wherever_it_was_cut(
        self, tmp_path: Path, suffix: str, members: int
    ) -> None:
        raw, pack = as_lines(RECORDS[:40]), PACKED[suffix]
        whole = pack(raw) if members == 1 else pack(raw[:2000]) + pack(raw[2000:])
        first = len(pack(raw[:2000])) if members == 2 else 0
        for length in {0, 1, 3, 8, 20, len(whole) // 2, len(whole) - 9, len(whole) - 1, first + 1, first + 12}:
            path = file(tmp_path, whole[:length], suffix)
            with pytest.raises(SourceError, match="the file cannot be unpacked") as refused:
                list(lines(path))
            assert refused.value.where is not None
            assert refused.value.where.startswith(f"{path}, after line ")
            assert refused.value.remedy == "fetch it again"

    @pytest.mark.parametrize("suffix", PACKED)
    def test_the_lines_before_the_damage_come_and_the_last_of_them_is_named(self, tmp_path: Path, suffix: str) -> None:
        pack = PACKED[suffix]
        path = file(tmp_path, pack(as_lines(RECORDS[:3])) + pack(as_lines(RECORDS[3:]))[:-10], suffix)
        read = []
        with pytest.raises(SourceError) as refused:
            for place in lines(path):
                read.append(place)  # noqa: PERF402  # what came before the error counts
        assert len(read) >= 3
        assert [json.loads(line) for _, line in read] == RECORDS[: len(read)]
        assert refused.value.where == f"{path}, after line {len(read)}"

    @pytest.mark.parametrize("suffix", PACKED)
    @pytest.mark.parametrize("data", [b'{"a": 1}\n', b"\0" * 100], ids=["not packed", "zeros"])
    def test_what_is_not_packed_is_an_error(self, tmp_path: Path, suffix: str, data: bytes) -> None:
        with pytest.raises(SourceError, match=r"(?s)cannot be unpacked.*after line 0"):
            values(file(tmp_path, data, suffix))

    @pytest.mark.parametrize("suffix", PACKED)
    def test_what_follows_the_packed_data_is_an_error(self, tmp_path: Path, suffix: str) -> None:
        """The last lines before it may be lost with it: libraries unpack a piece of the file at a time."""
        with pytest.raises(SourceError, match=r"(?s)cannot be unpacked.*after line (4\d\d|500)\n"):
            values(file(tmp_path, PACKED[suffix](as_lines(RECORDS)) + b"and more", suffix))

    @pytest.mark.parametrize("suffix", PACKED)
    def test_a_flipped_bit_is_an_error(self, tmp_path: Path, suffix: str) -> None:
        """gzip always carries a checksum; zstd's command line tool adds one, Arrow does not."""
        raw = as_lines(RECORDS)
        if suffix == ".zst":
            try:
                packed = subprocess.run(["zstd", "-q", "-c"], input=raw, capture_output=True, check=True).stdout
            except FileNotFoundError:
                pytest.skip("zstd is not on this machine")
        else:
            packed = gzip.compress(raw)
        at = len(packed) - 6  # in the checksum, or just before it
        damaged = packed[:at] + bytes([packed[at] ^ 1]) + packed[at + 1 :]
        with pytest.raises(SourceError, match="cannot be unpacked"):
            values(file(tmp_path, damaged, suffix))

    def test_a_file_that_is_not_there_is_not_called_damaged(self, tmp_path: Path) -> None:
        for suffix in ("", *PACKED):
            with pytest.raises(FileNotFoundError):
                values(tmp_path / f"missing.jsonl{suffix}")


class TestRepeatedKeys:
    RAW = b'{"a": 1}\n{"a": 1, "b": [{"k": "x", "\\u006b": "y"}]}\n'

    def test_the_last_one_wins(self, tmp_path: Path) -> None:
        assert values(file(tmp_path, self.RAW)) == [{"a": 1}, {"a": 1, "b": [{"k": "y"}]}]

    def test_or_the_record_is_refused_by_the_name_of_the_key(self, tmp_path: Path) -> None:
        path = file(tmp_path, self.RAW)
        with pytest.raises(RecordError, match=r"(?s)the key 'k' twice in one object.*records\.jsonl, line 2"):
            values(path, "refuse")


BOTH = pytest.mark.parametrize("repeated_keys", ["last", "refuse"])


@BOTH
class TestRecords:
    @pytest.mark.parametrize(
        "raw",
        [
            b"{",
            b"{'a': 1}",
            b'{"a": 1} {"b": 2}',
            b'{"a": NaN}',
            b'{"a": Infinity}',
            b'{"a": -Infinity}',
            b'{"a": 1e400}',
            b'{"a": 01}',
            b'{"a": 1,}',
            b'{"a": "tab\there"}',
            b'{"a": "\xff"}',
            b'{"a": "\xed\xa0\x80"}',  # half of a surrogate pair, as bytes
            b'{"a": "\\ud800"}',  # and as escapes
            b'{"a": "\\ude00\\ud83d"}',
            b'{"\\udfff": 1}',
            b"\xef\xbb\xbf{}",
            b"\0",
            b"9" * 10_000,  # more digits than any double holds
            b"[" * 100_000,
            b'{"a":' * 100_000,
            b"[" * 100_000 + b"]" * 100_000,
        ],
        ids=lambda raw: str(raw[:24]),
    )
    def test_what_is_not_json_is_named_by_its_line_and_the_others_are_read(
        self, tmp_path: Path, raw: bytes, repeated_keys: RepeatedKeys
    ) -> None:
        path = file(tmp_path, b'{"n": 1}\n' + raw + b'\n{"n": 3}\n')
        with pytest.raises(RecordError, match=r"(?s)the line is not .*records\.jsonl, line 2\n.*--on-error skip"):
            values(path, repeated_keys)
        unreadable: list[RecordError] = []
        read = list(json_lines(path, unreadable.append, repeated_keys=repeated_keys))
        assert read == [(f"{path}, line 1", {"n": 1}), (f"{path}, line 3", {"n": 3})]
        assert [error.where for error in unreadable] == [f"{path}, line 2"]

    @pytest.mark.parametrize(
        "number", [2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**20, -(10**300), 12345678901234567890123]
    )
    def test_integers_keep_their_digits(self, tmp_path: Path, number: int, repeated_keys: RepeatedKeys) -> None:
        path = file(tmp_path, f'{{"a": [{number}], "b": 0.5}}\n'.encode())
        (value,) = values(path, repeated_keys)
        assert value == {"a": [number], "b": 0.5}
        assert type(value["a"][0]) is int

    def test_they_keep_them_wherever_they_begin(self, tmp_path: Path, repeated_keys: RepeatedKeys) -> None:
        texts = ["x" * length for length in range(20)]
        path = file(tmp_path, "".join(f'{{"a": "{text}", "n": {2**64}}}\n' for text in texts).encode())
        assert values(path, repeated_keys) == [{"a": text, "n": 2**64} for text in texts]

    def test_a_pair_of_surrogates_is_one_character(self, tmp_path: Path, repeated_keys: RepeatedKeys) -> None:
        assert values(file(tmp_path, b'"\\ud83d\\ude00"'), repeated_keys) == ["😀"]

    def test_nesting_is_read_or_refused_and_never_ends_the_program(
        self, tmp_path: Path, repeated_keys: RepeatedKeys
    ) -> None:
        depths = (1, 100, 500, 900, 990, 1000, 1010, 1024, 1025, 3000)
        path = file(tmp_path, b"".join(b"[" * depth + b"]" * depth + b"\n" for depth in depths))
        refused: list[RecordError] = []
        read = [place for place, _ in json_lines(path, refused.append, repeated_keys=repeated_keys)]
        assert len(read) + len(refused) == len(depths)
        assert read[:3] == [f"{path}, line {number}" for number in (1, 2, 3)]
        assert refused[-1].where == f"{path}, line {len(depths)}"

    def test_a_string_of_a_million_characters(self, tmp_path: Path, repeated_keys: RepeatedKeys) -> None:
        records = ["x\u2028" * 500_000, "y"]
        assert values(file(tmp_path, as_lines(records)), repeated_keys) == records
