"""A pool's failures say what to do; what its processes share has no name that would outlive them."""

import multiprocessing
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spanloom import workers
from spanloom.errors import WorkerError
from spanloom.options.shared import MAX_WORKERS
from spanloom.workers import Counters, passing, process_pool
from support import sources, worker_counts
from support.nightly import nightly

SCRIPT = """
from pathlib import Path
from spanloom.errors import SpanloomError
from spanloom.families.harmony.build import BuildOptions, build
{guard}
    try:
        options = BuildOptions(source=Path({source!r}), out=Path({out!r}), shards=1, valid_fraction=0.5, workers=2)
        result = build(options)
        print("clean", result.report.clean)
    except SpanloomError as error:
        print(error)
"""


@pytest.mark.parametrize("guard", [nightly("if __name__ == '__main__':"), "if True:"])
def test_a_script_without_a_guard_runs_once(tmp_path: Path, guard: str) -> None:
    source = sources.write_source(tmp_path / "source", [sources.rows(20)])
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard=guard, source=str(source), out=str(tmp_path / "out")))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("clean True\n", "", 0)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is told by glibc alone to keep memory")
def test_a_worker_does_not_ask_twice_for_memory_that_it_has_freed() -> None:
    """Arrays above 32 MiB: glibc gives the memory of these back at once, whatever came before."""
    with process_pool(1) as pool:
        first, *later = pool.submit(worker_counts.page_faults, 40 << 20, 4).result()
    assert first > 10
    assert max(later) < first / 4, (first, later)


@pytest.mark.parametrize("seconds", [0.2, 0.4, 0.8])
def test_a_pool_ends_while_a_worker_sends_a_result(tmp_path: Path, seconds: float) -> None:
    """A result of 400 MiB is pickled for about a quarter of a second, and sent for longer."""
    begun = tmp_path / "begun"

    def end_early() -> None:
        with process_pool(1) as pool:
            pool.submit(worker_counts.much, begun, 400 << 20)
            while not begun.exists():
                time.sleep(0.001)
            time.sleep(seconds)
            pool.abort()

    ending = threading.Thread(target=end_early, daemon=True)
    ending.start()
    ending.join(30)
    assert not ending.is_alive()


@pytest.mark.parametrize("seconds", [0.2, 0.4, 0.8])
def test_a_worker_that_is_killed_while_it_sends_a_result_is_noticed(
    tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system does for want of memory. Another worker waits meanwhile."""
    monkeypatch.setattr(workers, "NOTICED_SECONDS", 1)
    begun, ended = tmp_path / "begun", list[object]()

    def lose_a_worker() -> None:
        try:
            with process_pool(2) as pool:
                sent = pool.submit(worker_counts.much, begun, 400 << 20)
                while not (begun.exists() and begun.read_text()):
                    time.sleep(0.001)
                time.sleep(seconds)
                os.kill(int(begun.read_text()), signal.SIGKILL)
                ended.append(len(pool.result(sent, "a large result")))
        except WorkerError as error:
            ended.append(error)

    losing = threading.Thread(target=lose_a_worker, daemon=True)
    losing.start()
    losing.join(30)
    assert not losing.is_alive()
    (outcome,) = ended
    assert outcome == 400 << 20 or "a worker process died while the pool was busy with a large result" in str(outcome)


def named_semaphores(maps: str) -> set[str]:
    return set(re.findall(r"\S*/sem\.\S+", maps))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has mapped is told by Linux alone")
def test_no_semaphore_has_a_name_that_a_kill_would_leave() -> None:
    """Those of multiprocessing lie in /dev/shm until somebody removes them, which a killed group does not."""
    own = Path("/proc/self/maps")
    before = named_semaphores(own.read_text())
    plain = multiprocessing.get_context("spawn").Lock()
    assert named_semaphores(own.read_text()) > before, "a named one would be seen here"
    del plain
    before = named_semaphores(own.read_text())
    with process_pool(2, Counters(2)) as pool:
        futures = [pool.submit(own.read_text) for _ in range(6)]
        maps = [pool.result(future, "reading") for future in futures]
        assert named_semaphores(own.read_text()) <= before
    assert not any(map(named_semaphores, maps))


def test_counts_of_several_processes_add_up() -> None:
    counters = Counters(3)
    with process_pool(2, counters) as pool:
        for future in [pool.submit(worker_counts.count, 500) for _ in range(8)]:
            pool.result(future, "counting")
        counters.add(0, rejects=1)
    first = counters.read(range(1))
    assert (first.rows, first.tokens, first.rejects) == (4000, 8000, 1)
    assert counters.read(range(1, 2)) == counters.read(range(2, 3))
    assert counters.read(range(1, 2)).rows == 0


class Interrupted:
    """A loader whose workers start while Ctrl-C comes, in another thread than the main one."""

    whole = ended = False

    def __iter__(self) -> "Interrupted":
        os.kill(os.getpid(), signal.SIGINT)
        self.whole = True
        return self

    def __next__(self) -> int:
        raise StopIteration

    def _shutdown_workers(self) -> None:
        self.ended = True


def test_ctrl_c_while_a_pass_begins_comes_when_it_has_begun() -> None:
    """Signals go to whichever thread has no mask; Python then raises KeyboardInterrupt in the main thread."""
    loader, over = Interrupted(), threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    # A process that a shell started in the background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            passing(loader)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        over.set()
        other.join()
    assert loader.whole
    assert loader.ended


def test_more_workers_than_a_pool_can_hold_are_refused() -> None:
    with pytest.raises(WorkerError, match="more than 1,024"), process_pool(MAX_WORKERS + 1):
        raise AssertionError("a pool was made")


def _refusal_in_a_pool() -> str:
    try:
        with process_pool(1):
            return ""
    except WorkerError as refusal:
        return str(refusal)


def test_a_daemonic_process_is_told_what_to_do() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as daemonic:
        assert "ProcessPoolExecutor" in daemonic.apply(_refusal_in_a_pool)
