"""A folder that one command fills: killed before any change it makes, the same command ends as if it had not been."""

import fcntl
import json
import shutil
import tracemalloc
from pathlib import Path

import pytest

from spanloom.errors import ConflictError
from spanloom.storage import TEMPORARY_MARK, publish_bytes
from spanloom.storage.folders.filling import filling
from support.killed import STRIDE, changes_of, killed_before

RECORD = ".record"
FILES = {"a/one": b"1", "a/two": b"2", "three": b"3", "last.json": b"4"}


def begun(identity: str, files: list[str]) -> str:
    """The record of a run that wrote some of its files."""
    return f"{json.dumps({'identity': identity, 'last': files[-1]})}\n{json.dumps({'files': files})}\n"


def fill(out: Path, *, identity: str = "this", files: dict[str, bytes] = FILES) -> bool:
    with filling(out, record_name=RECORD, identity=identity, files=list(files)) as finished:
        if not finished:
            assert [path.name for path in out.rglob("*") if path.is_file()] in ([RECORD], [RECORD, "mine"])
            for name, data in files.items():
                publish_bytes(data, out / name)
    return finished


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


WHOLE = {"a": None, **FILES}


def test_killed_before_any_change_the_same_command_fills_the_folder(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    change = 0
    while True:
        change += STRIDE
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        if not killed_before(change, lambda: fill(out)):
            break
        if (out / "last.json").exists():
            assert {name: data for name, data in tree(out).items() if name in FILES} == FILES
        fill(out)
        assert tree(out) == WHOLE
    assert change > 4 * len(FILES)
    assert tree(out) == WHOLE


def test_clearing_may_be_killed_as_well(tmp_path: Path) -> None:
    """The first run is killed before its last change but one; the second, which clears, before each of its own."""
    changes = changes_of(lambda: fill(tmp_path / "count"))
    assert killed_before(changes - 2, lambda: fill(tmp_path / "left"))
    second = 0
    while True:
        second += STRIDE
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        shutil.copytree(tmp_path / "left", tmp_path / "out")
        if not killed_before(second, lambda: fill(tmp_path / "out", identity="another")):
            break
        if (tmp_path / "out/last.json").exists():
            assert tree(tmp_path / "out").items() >= FILES.items()
        fill(tmp_path / "out", identity="another")
        assert tree(tmp_path / "out") == WHOLE
    assert second > len(FILES)


def test_what_was_finished_is_found_finished(tmp_path: Path) -> None:
    fill(tmp_path / "out")
    record = tmp_path / "out" / RECORD
    record.write_text(begun("this", list(FILES)))
    assert fill(tmp_path / "out")
    assert tree(tmp_path / "out") == WHOLE


def test_only_what_the_record_names_is_removed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    mine = ("mine", "a/mine", f"a/.mine{TEMPORARY_MARK}abcdefgh", "b/one", f"b/.one{TEMPORARY_MARK}abcdefgh")
    for name in (*mine, "a/one", f"a/.two{TEMPORARY_MARK}abcdefgh"):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(b"mine")
    (out / RECORD).write_text(begun("this", list(FILES)))
    with pytest.raises(ConflictError, match="the output directory is not empty: it holds a"):
        fill(out)
    assert {name for name, data in tree(out).items() if data is not None} == set(mine)


@pytest.mark.parametrize("name", ["../precious", "/etc/hostname", "a/../../precious", "", "a\\b"])
def test_a_record_whose_names_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RECORD).write_text(begun("this", [name]))
    with pytest.raises(ConflictError, match="is not a valid name for a file below a folder"):
        fill(tmp_path / "out")
    assert (tmp_path / "precious").read_bytes() == b"mine"


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/one").write_bytes(b"mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out" / RECORD).write_text(begun("this", list(FILES)))
    with pytest.raises(ConflictError, match="nothing is written or removed through it"):
        fill(tmp_path / "out")
    assert (tmp_path / "elsewhere/one").read_bytes() == b"mine"


@pytest.mark.parametrize("torn", [b"", b"{", b"[]", b'{"files": []}', b"[" * 100_000])
def test_a_torn_record_stands_in_nobodys_way(tmp_path: Path, torn: bytes) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RECORD).write_bytes(torn)
    fill(tmp_path / "out")
    assert tree(tmp_path / "out") == WHOLE


def test_a_short_record_takes_little_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    fill(tmp_path / "out")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 22


def test_two_runs_do_not_fill_one_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / RECORD).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConflictError, match="another run of this command fills this folder"):
            fill(tmp_path / "out")
    assert list(tree(tmp_path / "out")) == [RECORD]


def test_a_run_that_fails_takes_its_record_and_its_folder_away(tmp_path: Path) -> None:
    def fail() -> None:
        with filling(tmp_path / "out", record_name=RECORD, identity=1, files=["x"]):
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        fail()
    assert list(tmp_path.iterdir()) == []
