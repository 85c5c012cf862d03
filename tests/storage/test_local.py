"""The laws of files: whole or not there, never overwritten by other bytes, nothing left behind."""

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spanloom.errors import ConflictError
from spanloom.storage import (
    TEMPORARY_MARK,
    clear_temporaries,
    clear_temporaries_of,
    free_bytes,
    path_below,
    publish,
    publish_bytes,
    remove_files,
    sha256_file,
    temporary_beside,
    write_atomically,
    written_atomically,
)

OLD, NEW = b"old bytes", b"new bytes, and more"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def publish_file(data: bytes, path: Path) -> None:
    """What a writer does: a temporary file beside the final name, then `publish`."""
    temporary = temporary_beside(path)
    temporary.write_bytes(data)
    publish(temporary, path, sha256(data))


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_a_files_hash_is_the_sha256_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert sha256_file(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("publisher", [publish_file, publish_bytes])
def test_what_is_published_stands_alone_under_its_name(
    tmp_path: Path, publisher: Callable[[bytes, Path], None]
) -> None:
    publisher(NEW, tmp_path / "new" / "folder" / "file")
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["file"]
    assert (tmp_path / "new" / "folder" / "file").read_bytes() == NEW


@pytest.mark.parametrize("publisher", [publish_file, publish_bytes])
def test_publish_never_overwrites_other_bytes_and_names_both(
    tmp_path: Path, publisher: Callable[[bytes, Path], None]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    before = path.stat()
    with pytest.raises(ConflictError) as conflict:
        publisher(NEW, path)
    assert sha256(OLD) in str(conflict.value)
    assert sha256(NEW) in str(conflict.value)
    assert conflict.value.where == str(path)
    assert conflict.value.remedy
    assert path.read_bytes() == OLD
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("publisher", [publish_file, publish_bytes])
def test_the_same_bytes_count_as_written(tmp_path: Path, publisher: Callable[[bytes, Path], None]) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    before = path.stat()
    publisher(OLD, path)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


def test_of_two_that_publish_at_once_one_wins_whole(tmp_path: Path) -> None:
    for turn in range(50):
        path = tmp_path / f"file-{turn}"
        refused: list[bytes] = []
        gate = threading.Barrier(2)

        def compete(data: bytes, path: Path = path, gate: threading.Barrier = gate, refused: list[bytes] = refused):
            temporary = temporary_beside(path)
            temporary.write_bytes(data)
            gate.wait()
            try:
                publish(temporary, path, sha256(data))
            except ConflictError:
                refused.append(data)

        threads = [threading.Thread(target=compete, args=(data,)) for data in (OLD, NEW)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted([path.read_bytes(), *refused]) == sorted([OLD, NEW])
    assert len(list(tmp_path.iterdir())) == 50


def test_publish_works_without_hard_links_and_still_never_overwrites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "this file system has no hard links")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "file"
    publish_file(OLD, path)
    assert path.read_bytes() == OLD
    with pytest.raises((ConflictError, OSError)):
        publish_file(NEW, path)
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


def test_written_atomically_replaces_only_when_the_block_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    with written_atomically(path) as stream:
        stream.write(NEW)
        stream.flush()
        assert path.read_bytes() == OLD
    assert path.read_bytes() == NEW
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("standing", [None, OLD])
def test_an_exception_leaves_what_was_there_and_nothing_else(tmp_path: Path, standing: bytes | None) -> None:
    path = tmp_path / "file"
    if standing is not None:
        path.write_bytes(standing)
    with pytest.raises(KeyboardInterrupt), written_atomically(path) as stream:
        stream.write(NEW)
        raise KeyboardInterrupt
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == (
        {} if standing is None else {"file": standing}
    )


def test_write_atomically_makes_the_folder_that_is_missing(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a" / "b" / "file", NEW)
    assert (tmp_path / "a" / "b" / "file").read_bytes() == NEW


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
@pytest.mark.parametrize("write", [publish_file, publish_bytes, lambda data, path: write_atomically(path, data)])
def test_permissions_follow_the_umask(
    tmp_path: Path, mask: int, mode: int, write: Callable[[bytes, Path], None]
) -> None:
    with umask(mask):
        write(NEW, tmp_path / "file")
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_making_a_temporary_leaves_the_umask_as_it_was(tmp_path: Path) -> None:
    with umask(0o027):
        temporary_beside(tmp_path / "file")
        assert os.umask(0o027) == 0o027


def test_a_temporary_lies_beside_its_file_hidden_and_marked(tmp_path: Path) -> None:
    first, second = (temporary_beside(tmp_path / "train" / "file") for _ in range(2))
    assert first != second
    for temporary in (first, second):
        assert temporary.parent == tmp_path / "train"
        assert temporary.name.startswith(f".file{TEMPORARY_MARK}")
        assert temporary.read_bytes() == b""


def test_clear_temporaries_removes_ours_and_only_ours(tmp_path: Path) -> None:
    kept = [
        tmp_path / "train" / "shard_00_tokens.bin",
        tmp_path / "train" / ".hidden",
        tmp_path / "train" / ".shard_00_tokens.bin.tmp",
        tmp_path / f"notes{TEMPORARY_MARK}of-mine",
        tmp_path / ".work" / "rendered_00" / "part_00000.json",
    ]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(OLD)
    for path in kept:
        temporary_beside(path)
    temporary_beside(tmp_path / "manifest.json")
    clear_temporaries(tmp_path)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)


def test_clear_temporaries_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    temporary = temporary_beside(outside / "file")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(outside)
    clear_temporaries(tmp_path / "root")
    assert temporary.exists()


def test_clear_temporaries_of_files_leaves_those_of_others(tmp_path: Path) -> None:
    ours = [tmp_path / "root/train/a.bin", tmp_path / "root/manifest.json"]
    others = [tmp_path / "root/train/b.bin", tmp_path / "root/nested/train/a.bin", tmp_path / "elsewhere/a.bin"]
    gone, kept = ([temporary_beside(path) for path in paths] for paths in (ours, others))
    (tmp_path / "root/valid").symlink_to(tmp_path / "elsewhere")
    link = tmp_path / f"root/train/.a.bin{TEMPORARY_MARK}link"
    link.symlink_to(kept[0])
    clear_temporaries_of([*ours, tmp_path / "root/valid/a.bin", tmp_path / "not/there"])
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in (*kept, link))


def test_remove_files_removes_exactly_these_and_the_folders_that_held_nothing_else(tmp_path: Path) -> None:
    for name in ("a/one", "a/two", "b/one", "three"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(OLD)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("three")
    remove_files(tmp_path, ["a/one", "b/one", "folder", "link", "not/there"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "folder", "link", "three"]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["two"]


@pytest.mark.parametrize("name", ["", "/etc/hostname", "../x", "a/../../x", ".", "a//b", "a/", "a\\b", "a\0b"])
def test_a_name_that_leads_elsewhere_is_no_path_below(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConflictError, match="is not a valid name for a file below a folder"):
        path_below(tmp_path, name)


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_bytes(OLD)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/train").symlink_to(tmp_path / "outside")
    with pytest.raises(ConflictError, match="nothing is written or removed through it"):
        remove_files(tmp_path / "root", ["train/file"])
    assert (tmp_path / "outside/file").read_bytes() == OLD


def test_clear_temporaries_has_nothing_to_do_where_nothing_is(tmp_path: Path) -> None:
    clear_temporaries(tmp_path / "not" / "there")
    assert list(tmp_path.iterdir()) == []


def test_free_space_is_known_before_the_folder_is_made(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "not" / "made" / "yet") > 0
    assert list(tmp_path.iterdir()) == []
