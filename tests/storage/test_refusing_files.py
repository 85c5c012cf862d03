"""File systems without locks, without fsync of folders, without chmod: the work goes on, with one notice.

The refusals are those of a layer before the C library (`support.refusing_files`), and of bindfs where it starts.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from spanloom.errors import ConflictError, StorageError
from spanloom.storage import locks
from spanloom.storage.folders.filling import filling
from spanloom.storage.locks import held
from support import warm
from support.folders import files_of
from support.refusing_files import COMPILER, refusing

needs_layer = pytest.mark.skipif(
    sys.platform != "linux" or COMPILER is None, reason="needs Linux and a C compiler for the refusing layer"
)
CHATS = "".join(json.dumps({"prompt": f"q{n}", "response": f"a{n}"}) + "\n" for n in range(50))
NOTICES = {"flock": "no locks (flock)", "fsync": "no fsync of folders", "chmod": "no chmod"}
ALONE = [pytest.param((name,), marks=pytest.mark.nightly) for name in NOTICES]


def run(folder: Path, words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Fresh where the layer is loaded: `LD_PRELOAD` is read at the start."""
    return warm.run("spanloom", *words, cwd=folder, env=environment)


def converted(folder: Path, out: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return run(folder, ["convert", "chat.jsonl", "-y", "--rows-per-shard", "10", "--out", out], environment)


@needs_layer
@pytest.mark.parametrize("what", [*ALONE, tuple(NOTICES)], ids="-".join)
def test_a_conversion_makes_the_same_bytes_and_says_once_what_is_not_protected(
    tmp_path: Path, what: tuple[str, ...]
) -> None:
    (tmp_path / "chat.jsonl").write_text(CHATS)
    assert converted(tmp_path, "plain", {**os.environ}).returncode == 0
    done = converted(tmp_path, "refused", refusing(tmp_path, *what))
    assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "refused") == files_of(tmp_path / "plain")
    for name, notice in NOTICES.items():
        assert done.stderr.count(notice) == (name in what), done.stderr


@needs_layer
def test_quiet_holds_for_notices(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_text(CHATS)
    words = ["convert", "chat.jsonl", "-y", "--out", "out", "--quiet"]
    done = run(tmp_path, words, refusing(tmp_path, *NOTICES))
    assert (done.returncode, done.stderr) == (0, "")


@needs_layer
def test_builds_and_exports_go_on_without_all_three(tmp_path: Path) -> None:
    trees = []
    for name, what in (("plain", ()), ("refused", tuple(NOTICES))):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "chat.jsonl").write_text(CHATS)
        assert converted(folder, "source", {**os.environ}).returncode == 0
        for words in (
            ["build", "--source", "source", "--out", "root"],
            ["build", "--source", "source", "--out", "root", "--overwrite", "--max-rows", "20"],
            ["export", "root", "--to", "trl", "--out", "exported"],
        ):
            done = run(folder, words, refusing(folder, *what) if what else {**os.environ})
            assert done.returncode == 0, done.stderr
            assert [done.stderr.count(notice) for notice in NOTICES.values()] == [bool(what)] * 3, done.stderr
        trees.append(files_of(folder))
    views = {"root/report.html", "root/report.json", "root/manifest.json"}  # with the time of the build
    assert trees[0].keys() == trees[1].keys()
    assert {name for name in trees[0] if trees[0][name] != trees[1][name]} <= views
    contents = [json.loads(files["root/manifest.json"])["content"] for files in trees]
    assert contents[0] == contents[1]


@pytest.fixture(scope="module")
def chmod_denied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder through bindfs that denies chmod."""
    folder = tmp_path_factory.mktemp("bindfs")
    (folder / "below").mkdir()
    (folder / "mounted").mkdir()
    bindfs, unmount = shutil.which("bindfs"), shutil.which("fusermount3") or shutil.which("fusermount")
    command = [bindfs or "bindfs", "--chmod-deny", folder / "below", folder / "mounted"]
    if bindfs is None or unmount is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs bindfs, and the right to mount with FUSE")
    yield folder / "mounted"
    subprocess.run([unmount, "-u", folder / "mounted"], check=True)


def test_bindfs_that_denies_chmod(chmod_denied: Path, tmp_path: Path) -> None:
    for folder in (chmod_denied, tmp_path):
        (folder / "chat.jsonl").write_text(CHATS)
    done = converted(chmod_denied, "out", {**os.environ})
    assert done.returncode == 0, done.stderr
    assert converted(tmp_path, "out", {**os.environ}).returncode == 0
    names = {name: path for name, path in files_of(chmod_denied / "out").items() if name.endswith(".parquet")}
    assert names == {name: path for name, path in files_of(tmp_path / "out").items() if name.endswith(".parquet")}


HOLDER = """
import sys, time
from pathlib import Path
from spanloom.errors import ConflictError
from spanloom.storage.locks import held
path = Path(sys.argv[1])
with path.open("a") as lock, held(lock, path, ConflictError("held", where="here", remedy="wait")):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """`flock` is refused in this process."""

    def refused(*_: object) -> None:
        raise OSError(38, os.strerror(38))

    monkeypatch.setattr(locks.fcntl, "flock", refused)


REFUSAL = ConflictError("another build is running", where="here", remedy="wait for it")


@contextmanager
def locking(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("a") as stream, held(stream, folder / "lock", REFUSAL):
        yield


@needs_layer
def test_a_second_run_is_refused_until_the_first_is_dead(tmp_path: Path, without_locks: None) -> None:
    lock = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, lock],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=refusing(tmp_path, "flock"),
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        named = rf"another build is running: process {holder.pid} on {socket.gethostname()}, last seen"
        with (
            pytest.raises(ConflictError, match=named),
            lock.open("a") as stream,
            held(stream, tmp_path / "lock", REFUSAL),
        ):
            pass
        holder.kill()
    assert (tmp_path / "lock.claim").exists()
    with locking(tmp_path):
        assert json.loads((tmp_path / "lock.claim").read_text())["process"] == os.getpid()
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def foreign(tmp_path: Path, seconds: float) -> None:
    """A claim of another machine, last seen so many seconds ago."""
    claim = tmp_path / "lock.claim"
    about = {"host": "node-7", "boot": "another", "namespace": "pid:[1]", "process": 12, "started": "5", "token": "t"}
    claim.write_text(json.dumps(about))
    seen = time.time() - seconds
    os.utime(claim, (seen, seen))


@pytest.mark.parametrize(("seconds", "free"), [(1, False), (250, False), (350, True)])
def test_a_claim_of_another_machine_is_free_when_its_heartbeat_is_old(
    tmp_path: Path, without_locks: None, seconds: float, free: bool
) -> None:
    foreign(tmp_path, seconds)
    if free:
        with locking(tmp_path):
            pass
        assert not (tmp_path / "lock.claim").exists()
        return
    named = r"process 12 on node-7.*\n.*\n.*--take-over"
    with pytest.raises(ConflictError, match=named), locking(tmp_path):
        pass
    assert (tmp_path / "lock.claim").exists()


def test_take_over(tmp_path: Path, without_locks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign(tmp_path, 1)
    monkeypatch.setenv(locks.TAKE_OVER_VARIABLE, "1")
    with locking(tmp_path):
        assert b"node-7" not in (tmp_path / "lock.claim").read_bytes()


def test_a_machine_with_locks_respects_the_claim_of_one_without(tmp_path: Path) -> None:
    foreign(tmp_path, 1)
    with pytest.raises(ConflictError, match="node-7"), locking(tmp_path):
        pass


def test_a_run_that_lost_its_claim_says_so(tmp_path: Path, without_locks: None) -> None:
    named = "taken this folder over: process 12 on node-7"
    with pytest.raises(StorageError, match=named), locking(tmp_path):
        foreign(tmp_path, 0)


def test_the_heartbeat_rewrites_the_claim(tmp_path: Path, without_locks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.05)
    claim = tmp_path / "lock.claim"
    with locking(tmp_path):
        os.utime(claim, (1, 1))
        until = time.monotonic() + 20
        while claim.stat().st_mtime == 1:
            assert time.monotonic() < until
            time.sleep(0.01)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"process": "x"}', b"[" * 5000])
def test_a_claim_that_says_nothing_is_held(tmp_path: Path, without_locks: None, content: bytes) -> None:
    (tmp_path / "lock.claim").write_bytes(content)
    with (
        pytest.raises(ConflictError),
        (tmp_path / "lock").open("a") as stream,
        held(stream, tmp_path / "lock", REFUSAL),
    ):
        pass


def test_a_filled_folder_has_no_claim_left(tmp_path: Path, without_locks: None) -> None:
    run_of = partial(filling, tmp_path / "out", record_name=".record", identity="one", files=["a"])
    with run_of() as finished:
        assert not finished
        named = "another run of this command fills this folder: process"
        with pytest.raises(ConflictError, match=named), run_of():
            pass
        (tmp_path / "out/a").write_text("a")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]
