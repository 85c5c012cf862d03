"""Files that are written again: the same bytes are kept, others are replaced on request, all or none."""

from pathlib import Path

import pytest

from spanloom.errors import ConflictError
from spanloom.storage.folders.repeated_files import all_written_once, written_once


def write(path: Path, data: bytes, *, overwrite: bool = False) -> bool:
    same: list[bool] = []
    with written_once(path, overwrite=overwrite, on_same=lambda: same.append(True)) as stream:
        stream.write(data)
    return bool(same)


def test_the_same_bytes_are_kept_and_others_need_overwrite(tmp_path: Path) -> None:
    path = tmp_path / "new/file.bin"
    assert write(path, b"old") is False
    inode = path.stat().st_ino
    assert write(path, b"old") is True
    assert path.stat().st_ino == inode
    with pytest.raises(ConflictError, match="another result of this command"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert write(path, b"new", overwrite=True) is False
    assert path.read_bytes() == b"new"
    assert [each.name for each in path.parent.iterdir()] == ["file.bin"]


def test_a_block_that_raises_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="stopped"), written_once(path, overwrite=True) as stream:
        stream.write(b"new")
        raise RuntimeError("stopped")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("file.bin", b"old")]


def test_no_file_is_written_if_one_is_a_conflict(tmp_path: Path) -> None:
    new, other = tmp_path / "a/new.bin", tmp_path / "b/other.bin"
    other.parent.mkdir()
    other.write_bytes(b"of somebody")
    with pytest.raises(ConflictError, match=r"other\.bin"), all_written_once([new, other]) as streams:
        for stream in streams:
            stream.write(b"mine")
    assert not new.exists()
    assert other.read_bytes() == b"of somebody"


@pytest.mark.parametrize("target", ["there", "missing"])
def test_a_link_is_a_file_of_another(tmp_path: Path, target: str) -> None:
    (tmp_path / "there").write_bytes(b"x")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(ConflictError):
        write(tmp_path / "link", b"y")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_bytes() == b"x"


def test_a_full_device_is_named() -> None:
    with pytest.raises(OSError, match="No space left") as fault:
        write(Path("/dev/full"), b"x" * 100_000)
    assert fault.value.filename == "/dev/full"
