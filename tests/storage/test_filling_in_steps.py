"""A folder that one command fills in steps: ended early anywhere, the same command goes on after its last step."""

import errno
import fcntl
import os
import shutil
from pathlib import Path

import pytest

from spanloom.errors import ConflictError
from spanloom.storage import publish_bytes
from spanloom.storage.folders.filling import filling_in_steps
from support.killed import STRIDE, killed_before

RECORD, LAST = ".record", "last.json"
STEPS = ({"one": b"1", "more/one": b"10"}, {"two": b"2"}, {"three": b"3"})
WHOLE = {"one": b"1", "more": None, "more/one": b"10", "two": b"2", "three": b"3", LAST: b"123"}


def fill(out: Path, *, identity: str = "this", stop_in: int | None = None) -> list[int]:
    """Fills the folder; returns the numbers of the steps that this run made."""
    made: list[int] = []
    with filling_in_steps(out, record_name=RECORD, identity=identity, last=LAST) as steps:
        if steps.finished:
            return made
        for number in range(len(steps.ended), len(STEPS)):
            steps.begin(list(STEPS[number]))
            for name, data in STEPS[number].items():
                publish_bytes(data, out / name)
            if number == stop_in:
                raise KeyboardInterrupt
            made.append(number)
            steps.end(number + 1)
        publish_bytes("".join(str(number) for number in steps.ended).encode(), out / LAST)
    return made


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


def test_killed_before_any_change_the_same_command_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    change, gone_on = 0, set()
    while True:
        change += STRIDE
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        if not killed_before(change, lambda: fill(out)):
            break
        gone_on.add(len(fill(out)))
        assert tree(out) == WHOLE
    assert tree(out) == WHOLE
    assert gone_on == {0, 1, 2, 3}, "killed early all steps are made, killed late fewer, at the end none"


def test_a_disk_that_fails_at_any_sync_leaves_what_the_same_command_goes_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was to be synced may be on the disk all the same: a line of the record above all."""
    out, sync = tmp_path / "out", os.fsync
    failing, synced = 0, 0

    def fails_once(number: int) -> None:
        nonlocal synced
        synced += 1
        if synced == failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(number)

    monkeypatch.setattr(os, "fsync", fails_once)
    while True:
        failing, synced = failing + 1, 0
        shutil.rmtree(out, ignore_errors=True)
        try:
            fill(out)
        except OSError:
            fill(out)
            assert tree(out) == WHOLE, failing
        else:
            break
    assert failing > 1 + 2 * len(STEPS), "the header, and two lines a step"
    assert tree(out) == WHOLE


def test_another_run_clears_what_was_begun_wherever_it_was_killed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    change = 0
    while True:
        change += STRIDE
        if not killed_before(change, lambda: fill(out, identity="old")):
            break
        assert fill(out, identity="new") == [0, 1, 2]
        assert tree(out) == WHOLE
        shutil.rmtree(out)


def test_a_run_that_is_stopped_keeps_the_steps_that_ended(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        fill(out, stop_in=1)
    assert sorted(tree(out)) == [RECORD, "more", "more/one", "one"]
    assert fill(out) == [1, 2]
    assert tree(out) == WHOLE


def test_a_run_that_is_stopped_in_its_first_step_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "out", stop_in=0)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "there", stop_in=0)
    assert list((tmp_path / "there").iterdir()) == []


def test_what_others_put_there_is_a_conflict_and_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(ConflictError, match=r"is not empty: it holds notes\.txt"):
        fill(out)
    assert tree(out) == {"notes.txt": b"mine"}
    (out / "notes.txt").unlink()
    with pytest.raises(KeyboardInterrupt):
        fill(out, stop_in=2)
    (out / "notes.txt").write_text("mine")
    before = tree(out).keys()
    with pytest.raises(ConflictError, match=r"is not empty: it holds notes\.txt"):
        fill(out)
    assert tree(out).keys() == before
    (out / "notes.txt").unlink()
    assert fill(out) == [2]


def test_a_finished_folder_is_a_conflict(tmp_path: Path) -> None:
    fill(tmp_path / "out")
    before = tree(tmp_path / "out")
    with pytest.raises(ConflictError, match="is not empty"):
        fill(tmp_path / "out")
    assert tree(tmp_path / "out") == before


def test_a_record_that_names_files_elsewhere_removes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        fill(out, stop_in=1)
    (tmp_path / "theirs").write_text("theirs")
    with (out / RECORD).open("ab") as stream:
        stream.write(b'{"files": ["../theirs"]}\n')
    for identity in ("this", "other"):
        with pytest.raises(ConflictError, match="is not a valid name for a file below a folder"):
            fill(out, identity=identity)
    assert (tmp_path / "theirs").read_text() == "theirs"


@pytest.mark.parametrize("torn", [b'{"files": ["tw', b'{"files": ["two"]}', b"\xff\n"])
def test_a_torn_line_tells_of_nothing_that_was_written(tmp_path: Path, torn: bytes) -> None:
    with pytest.raises(KeyboardInterrupt):
        fill(tmp_path / "out", stop_in=1)
    with (tmp_path / "out" / RECORD).open("ab") as stream:
        stream.write(torn)
    assert fill(tmp_path / "out") == [1, 2]
    assert tree(tmp_path / "out") == WHOLE


def test_two_runs_at_once_are_a_conflict(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / RECORD).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConflictError, match="another run of this command"):
            fill(tmp_path / "out")
    with pytest.raises(ConflictError, match="is not a directory"):
        fill(tmp_path / "out" / RECORD)
