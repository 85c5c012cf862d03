"""Which files a place means: every one of a kind, in an order that no file system decides."""

import os
from pathlib import Path

import pytest

from spanloom.errors import SourceError
from spanloom.records.files import find_files, name_below, passed_over

SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_a_folder_is_all_files_of_a_kind_below_it_by_relative_path(tmp_path: Path) -> None:
    wanted = ["10.jsonl", "2.jsonl.gz", "B.parquet", "a-b.jsonl", "a/z.jsonl", "a0.jsonl", "ä.jsonl"]
    make(tmp_path, *reversed(wanted))
    make(tmp_path, "notes.txt", "jsonl", "x.jsonl.tmp", ".hidden.jsonl", "a/.part.jsonl", "x.JSONL", "x.gz")
    (tmp_path / "folder.jsonl").mkdir()  # is no file, and nothing lies in it
    assert find_files(tmp_path, SUFFIXES) == [tmp_path / name for name in wanted]


def test_a_file_is_itself_also_when_its_name_begins_with_a_dot(tmp_path: Path) -> None:
    make(tmp_path, "chats.jsonl.gz", ".chats.jsonl")
    for name in ("chats.jsonl.gz", ".chats.jsonl"):
        assert find_files(tmp_path / name, SUFFIXES) == [tmp_path / name]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.jsonl", "the source does not exist"),
        ("missing", "the source does not exist"),
        ("fifo.jsonl", "the source is not a regular file"),
        ("notes.txt", "unsupported file type"),
        ("empty", "the folder holds none of *.jsonl, *.jsonl.gz, *.parquet"),
    ],
)
def test_where_there_is_nothing_to_read_the_place_and_the_kinds_are_named(tmp_path: Path, name: str, said: str) -> None:
    make(tmp_path, "notes.txt", "empty/.hidden.jsonl", "empty/other.csv")
    os.mkfifo(tmp_path / "fifo.jsonl")
    with pytest.raises(SourceError) as refused:
        find_files(tmp_path / name, SUFFIXES)
    assert refused.value.what == said
    assert refused.value.where == str(tmp_path / name)
    assert refused.value.remedy


def test_a_name_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl", os.fsdecode(b"\xff.jsonl"))
    with pytest.raises(SourceError, match="name is not UTF-8"):
        find_files(tmp_path, SUFFIXES)


def test_what_is_not_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    make(folder, "a.jsonl", "b/c.jsonl", "b/notes.txt", ".hidden", "x.JSONL", os.fsdecode(b"\xff.txt"))
    (folder / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    (folder / "elsewhere").symlink_to(tmp_path)
    assert passed_over(folder, set(find_files(folder, SUFFIXES))) == [
        *("'\\udcff.txt'", "b/notes.txt", "elsewhere (a link to a folder)", "gone.jsonl (a link to nothing)", "x.JSONL")
    ]
    assert passed_over(folder / "a.jsonl", set()) == []


def test_a_file_is_called_by_its_path_below_what_was_given(tmp_path: Path) -> None:
    assert name_below(tmp_path / "a/b.jsonl", tmp_path) == "a/b.jsonl"
    assert name_below(tmp_path / "a/b.jsonl", tmp_path / "a") == "b.jsonl"
    assert name_below(tmp_path / "b.jsonl", tmp_path / "b.jsonl") == "b.jsonl"
