"""Raw SYNTH → `synth_harmony_v1`: on a failure nothing is left behind."""

import hashlib
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spanloom.errors import ConflictError, SourceError, SpanloomError
from spanloom.families.harmony.convert.synth import Conversion, convert_synth
from support import warm
from support.raw_synth import COLUMNS, numbered, tree


def refused(tmp_path: Path, raw: Path, kind: type[SpanloomError], message: str, **options) -> None:
    """Converting `raw` fails with the message, whether or not the output directory is there, and leaves nothing."""
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        with pytest.raises(kind, match=message):
            convert_synth(raw=raw, out=tmp_path / name, **options)
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("column", COLUMNS)
def test_a_missing_column_is_named_with_its_file(tmp_path: Path, column: str) -> None:
    numbered(tmp_path / "raw/a.parquet", 3)
    pq.write_table(pq.read_table(tmp_path / "raw/a.parquet").drop_columns(column), tmp_path / "raw/b.parquet")
    refused(tmp_path, tmp_path / "raw", SourceError, rf"the column {column} is missing\n  where: .*raw/b\.parquet\n")


@pytest.mark.parametrize("column", [*COLUMNS, "language"])
def test_a_column_of_numbers_is_refused(tmp_path: Path, column: str) -> None:
    table = {name: pa.array(["x"]) for name in COLUMNS} | {column: pa.array([1])}
    pq.write_table(pa.table(table), tmp_path / "raw.parquet")
    message = rf"the column {column} is int64, not text\n  where: .*raw\.parquet"
    refused(tmp_path, tmp_path / "raw.parquet", SourceError, message)


def test_a_required_column_without_any_value_is_refused(tmp_path: Path) -> None:
    table = {name: pa.array(["x"]) for name in COLUMNS} | {"query": pa.nulls(1)}
    pq.write_table(pa.table(table), tmp_path / "raw.parquet")
    refused(tmp_path, tmp_path / "raw.parquet", SourceError, "the column query is null, not text")


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    arrays = [pa.array(["x"])] * 5
    pq.write_table(pa.Table.from_arrays(arrays, names=[*COLUMNS, "query"]), tmp_path / "raw.parquet")
    refused(tmp_path, tmp_path / "raw.parquet", SourceError, "the column query occurs 2 times")


def test_seed_text_that_was_asked_for_must_be_a_column(tmp_path: Path) -> None:
    raw = numbered(tmp_path / "raw.parquet", 1)
    message = "the column query_seed_text is missing, but the seed text was requested"
    refused(tmp_path, raw, SourceError, message, conversion=Conversion(with_seed_text=True))


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    raw = numbered(tmp_path / "raw.parquet", 100)
    raw.write_bytes(raw.read_bytes()[:-100])
    refused(tmp_path, raw, SourceError, r"not a Parquet file, or a truncated one: .*\n  where: .*raw\.parquet")


def test_a_file_whose_footer_stands_but_whose_pages_do_not_is_refused_half_way(tmp_path: Path) -> None:
    numbered(tmp_path / "raw/a.parquet", 600)
    raw = numbered(tmp_path / "raw/b.parquet", 600)
    data = raw.read_bytes()
    raw.write_bytes(data[:4] + b"\xff" * 2000 + data[2004:])
    refused(tmp_path, tmp_path / "raw", SourceError, r"the file cannot be read: .*\n  where: .*b\.parquet, after row 0")


def test_a_dangling_link_is_refused_not_passed_over(tmp_path: Path) -> None:
    numbered(tmp_path / "raw/a.parquet", 1)
    (tmp_path / "raw/b.parquet").symlink_to(tmp_path / "nowhere")
    refused(tmp_path, tmp_path / "raw", SourceError, r"the file cannot be opened: .*No such.*\n  where: .*b\.parquet")


def test_a_directory_without_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/rows.json").write_text("{}")
    refused(tmp_path, tmp_path / "raw", SourceError, r"the directory holds no \*\.parquet file")


def test_raw_data_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, tmp_path / "raw", SourceError, "the raw data does not exist")


def test_a_cap_of_no_rows_is_refused(tmp_path: Path) -> None:
    raw = numbered(tmp_path / "raw.parquet", 1)
    refused(tmp_path, raw, SpanloomError, "a conversion of 0 rows makes no dataset", max_rows=0)


class StoppedError(Exception):
    """Stands for whatever may end a run half-way."""


def test_a_run_that_is_stopped_half_way_leaves_nothing(tmp_path: Path) -> None:
    during: list[list[str]] = []

    def stop(done: int, total: int) -> None:
        during.append(sorted(path.name for path in (tmp_path / "out").iterdir()))
        if done == total:
            raise StoppedError

    with pytest.raises(StoppedError):
        convert_synth(raw=numbered(tmp_path / "raw.parquet", 300), out=tmp_path / "out", on_progress=stop)
    assert not (tmp_path / "out").exists()
    # While it runs, nothing has a name that a reader would take for a shard or a manifest.
    assert [len(names) for names in during] == [5, 5], "four shards, and the record of a run that has not ended"
    hidden = (name.startswith(".") and not name.endswith((".parquet", ".json")) for names in during for name in names)
    assert all(hidden)


def test_a_shard_that_another_run_put_there_meanwhile_is_left_alone(tmp_path: Path) -> None:
    theirs = tmp_path / "out/synth_harmony_shard_01.parquet"

    def put_theirs(done: int, total: int) -> None:
        theirs.write_bytes(b"theirs")

    with pytest.raises(ConflictError, match=r"refusing to overwrite[^\n]*\n  where: .*shard_01\.parquet"):
        convert_synth(
            raw=numbered(tmp_path / "raw.parquet", 3),
            out=tmp_path / "out",
            on_progress=put_theirs,
        )
    assert list(tree(tmp_path / "out")) == [theirs.name]
    assert theirs.read_bytes() == b"theirs"


def test_an_output_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    raw = numbered(tmp_path / "raw.parquet", 3)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    said = r"is not empty: it holds notes\.txt\n  where: .*out\n  remedy: give another --out, or move"
    with pytest.raises(ConflictError, match=said):
        convert_synth(raw=raw, out=tmp_path / "out")
    assert tree(tmp_path / "out") == {"notes.txt": hashlib.sha256(b"mine").hexdigest()}
    with pytest.raises(ConflictError, match="the output is not a directory"):
        convert_synth(raw=raw, out=raw)


KILLED_HALF_WAY = """
import os, signal, sys
from pathlib import Path
from spanloom.families.harmony.convert.synth import Conversion, convert_synth, find_raw_files

def kill(done, total):
    os.kill(os.getpid(), signal.SIGKILL)

convert_synth(raw=Path(sys.argv[1]), out=Path(sys.argv[2]), conversion=Conversion(shards=2), on_progress=kill)
"""


def test_a_killed_conversion_is_cleared_and_begun_anew_by_the_same_command(tmp_path: Path) -> None:
    raw, out = numbered(tmp_path / "raw.parquet", 300), tmp_path / "out"
    conversion = Conversion(shards=2)
    done = warm.run_code(KILLED_HALF_WAY, raw, out)
    assert done.returncode == -signal.SIGKILL
    assert len(list(out.iterdir())) == 3
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ConflictError, match=r"is not empty: it holds notes\.txt"):
        convert_synth(raw=raw, out=out, conversion=conversion)
    assert [path.name for path in out.iterdir()] == ["notes.txt"]
    (out / "notes.txt").unlink()
    convert_synth(raw=raw, out=out, conversion=conversion)
    convert_synth(raw=raw, out=tmp_path / "undisturbed", conversion=conversion)
    assert tree(out) == tree(tmp_path / "undisturbed")


def test_another_conversion_into_the_same_place_is_a_conflict(tmp_path: Path) -> None:
    raw = numbered(tmp_path / "raw.parquet", 3)
    convert_synth(raw=raw, out=tmp_path / "out")
    before = tree(tmp_path / "out")
    convert_synth(raw=raw, out=tmp_path / "out")
    with pytest.raises(ConflictError, match="other options"):
        convert_synth(raw=raw, out=tmp_path / "out", max_rows=2)
    assert tree(tmp_path / "out") == before
