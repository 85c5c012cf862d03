"""Temporary files of processes that live, and of those that were killed: real processes, real locks."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spanloom.storage import (
    TEMPORARY_MARK,
    clear_temporaries_of,
    discard,
    publish_bytes,
    temporaries,
    temporary_beside,
    write_atomically,
    written_atomically,
)

HOLDER = """
import sys
from pathlib import Path
from spanloom.storage import temporary_beside
print(temporary_beside(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(
    not hasattr(fcntl, "F_OFD_SETLK") or not Path("/proc/sys/kernel/random/boot_id").is_file(),
    reason="temporary files are held on Linux alone",
)


@contextmanager
def holder(path: Path) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """A process that is writing `path`, and its temporary file."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def left_by_killed(path: Path) -> Path:
    """The temporary file of a process that was killed while it wrote `path`."""
    with holder(path) as (process, temporary):
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    assert temporary.exists()
    return temporary


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("write", [write_atomically, lambda path, data: publish_bytes(data, path)])
def test_the_next_writer_of_a_file_removes_what_a_killed_one_left(
    tmp_path: Path, write: Callable[[Path, bytes], None]
) -> None:
    for _ in range(2):
        left_by_killed(tmp_path / "out.jsonl")
    write(tmp_path / "out.jsonl", b"whole")
    assert names(tmp_path) == ["out.jsonl"]


def test_what_a_living_process_writes_is_never_removed(tmp_path: Path) -> None:
    with holder(tmp_path / "out.jsonl") as (_, living):
        dead = left_by_killed(tmp_path / "out.jsonl")
        write_atomically(tmp_path / "out.jsonl", b"whole")
        assert living.exists()
        assert not dead.exists()
    write_atomically(tmp_path / "out.jsonl", b"whole")
    assert names(tmp_path) == ["out.jsonl"]


def test_what_this_process_writes_is_never_removed_by_another_writer_in_it(tmp_path: Path) -> None:
    with written_atomically(tmp_path / "out") as first:
        first.write(b"first")
        write_atomically(tmp_path / "out", b"second")
        assert (tmp_path / "out").read_bytes() == b"second"
    assert (tmp_path / "out").read_bytes() == b"first"
    assert names(tmp_path) == ["out"]


def test_files_of_other_names_and_partial_downloads_stay(tmp_path: Path) -> None:
    other = left_by_killed(tmp_path / "other.jsonl")
    machine = other.name.partition(TEMPORARY_MARK)[2].partition("_")[0]
    kept = [
        other,
        tmp_path / f".out.jsonl{TEMPORARY_MARK}0123456789abcdef",  # a download that goes on
        tmp_path / f".out.jsonl{TEMPORARY_MARK}abcdefgh",  # of a file system without locks
        tmp_path / f".out.jsonl{TEMPORARY_MARK}{'0' * 8}_abcdefgh",  # of another machine
        tmp_path / f"out.jsonl{TEMPORARY_MARK}{machine}_abcdefgh",
        tmp_path / f".x.out.jsonl{TEMPORARY_MARK}{machine}_abcdefgh",
    ]
    for path in kept[1:]:
        path.write_bytes(b"kept")
    link = tmp_path / f".out.jsonl{TEMPORARY_MARK}{machine}_link"
    link.symlink_to(kept[1])
    fifo = tmp_path / f".out.jsonl{TEMPORARY_MARK}{machine}_fifo"
    os.mkfifo(fifo)
    write_atomically(tmp_path / "out.jsonl", b"whole")
    assert names(tmp_path) == sorted([path.name for path in (*kept, link, fifo)] + ["out.jsonl"])


def test_what_sqlite_made_beside_a_temporary_store_goes_with_it(tmp_path: Path) -> None:
    dead = left_by_killed(tmp_path / "traces.sqlite")
    with holder(tmp_path / "traces.sqlite") as (_, living):
        for temporary in (dead, living):
            for suffix in ("-wal", "-shm", "-journal"):
                temporary.with_name(temporary.name + suffix).write_bytes(b"")
        discard(temporary_beside(tmp_path / "traces.sqlite"))
        assert names(tmp_path) == sorted(living.name + suffix for suffix in ("", "-wal", "-shm", "-journal"))


def test_a_name_that_was_published_keeps_its_bytes_where_the_process_died_before_it_removed_the_other(
    tmp_path: Path,
) -> None:
    left = left_by_killed(tmp_path / "out")
    left.write_bytes(b"whole")
    os.link(left, tmp_path / "out")
    publish_bytes(b"whole", tmp_path / "out")
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out").read_bytes() == b"whole"


def test_nothing_is_held_of_what_has_its_name_or_is_gone(tmp_path: Path) -> None:
    before = set(temporaries._held)
    write_atomically(tmp_path / "a", b"a")
    publish_bytes(b"b", tmp_path / "b")
    with contextlib.suppress(ZeroDivisionError), written_atomically(tmp_path / "c"):
        raise ZeroDivisionError
    assert set(temporaries._held) == before


def test_without_locks_files_are_written_and_none_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file system without locks answers is raised in place of the call; none can be mounted here."""
    left = left_by_killed(tmp_path / "out")

    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    write_atomically(tmp_path / "out", b"whole")
    assert names(tmp_path) == sorted([left.name, "out"])
    temporary = temporary_beside(tmp_path / "out")
    monkeypatch.undo()
    # It was made without a lock: a writer that has locks takes it for a living one.
    write_atomically(tmp_path / "out", b"whole")
    assert names(tmp_path) == sorted([temporary.name, "out"])
    discard(temporary)


def test_without_a_name_for_the_machine_none_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = left_by_killed(tmp_path / "out")
    monkeypatch.setattr(temporaries, "_boot_id", lambda: None)
    write_atomically(tmp_path / "out", b"whole")
    assert names(tmp_path) == sorted([left.name, "out"])


def test_views_of_a_root_are_spared_while_a_process_writes_them(tmp_path: Path) -> None:
    with holder(tmp_path / "report.html") as (_, living):
        dead = left_by_killed(tmp_path / "report.html")
        elsewhere = tmp_path / f".report.html{TEMPORARY_MARK}{'0' * 8}_abcdefgh"
        elsewhere.write_bytes(b"")
        clear_temporaries_of([tmp_path / "report.html"], spare_held=True)
        assert names(tmp_path) == [living.name]
        assert not dead.exists()
    clear_temporaries_of([tmp_path / "report.html"], spare_held=True)
    assert names(tmp_path) == []


def test_many_writers_of_one_name_take_nothing_from_each_other(tmp_path: Path) -> None:
    """Each removes what is dead while the others make theirs."""
    program = """
import sys
from pathlib import Path
from spanloom.storage import write_atomically
for number in range(200):
    write_atomically(Path(sys.argv[1]), b"%d" % number)
"""
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "out")], stderr=subprocess.PIPE) for _ in "abc"
    ]
    faults: list[BaseException] = []

    def here() -> None:
        try:
            for _ in range(200):
                write_atomically(tmp_path / "out", b"199")
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=here) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(writer.communicate()[1], writer.returncode) for writer in writers] == [(b"", 0)] * 3
    assert faults == []
    assert (tmp_path / "out").read_bytes() == b"199"
    assert names(tmp_path) == ["out"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a process another user")
def test_what_cannot_be_removed_is_named_and_the_file_is_written() -> None:
    """A folder with the sticky bit, as /tmp: another user's file may be read there, and not be removed."""
    program = """
import os, sys
from pathlib import Path
from spanloom.storage import write_atomically
os.setuid(65534)
write_atomically(Path(sys.argv[1]), b"whole")
"""
    with tempfile.TemporaryDirectory() as made:  # pytest's folders are for their user alone
        folder = Path(made)
        folder.chmod(0o1777)
        left = left_by_killed(folder / "out")
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder / "out")], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert f"{left} was left by a killed process and cannot be removed: Operation not permitted" in done.stderr
        assert names(folder) == sorted([left.name, "out"])
