"""What a build leaves behind when it is killed, runs out of disk, loses a worker, meets another build or gets Ctrl-C:
never a dataset that is not one, and always something that the same command finishes. Real processes, most are forks.
"""

import hashlib
import json
import os
import random
import re
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from conftest import Cli
from support import sources, warm
from support.nightly import drawn, nightly

pytestmark = pytest.mark.slow

ROWS = (5000, 300, 100, 60)  # parts: 2, 1, 1 and 1
OPTIONS = ("--valid-fraction", "0.1", "--deep", "0", "--workers", "2")
KILLS = int(os.environ.get("SPANLOOM_KILLS", drawn(4, 2)))
"""How often a build is killed at a random point: two of each kind; 20 in `make chaos`."""
PATIENCE = 60.0
"""Seconds to wait for what must come at once; reached only when a test fails."""


@dataclass(frozen=True, kw_only=True)
class Undisturbed:
    """The build that every disturbed one must equal, the seconds it took, and the disk it needed at each stage."""

    root: Path
    seconds: float
    work_bytes: int
    data_bytes: int


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def tiny(synth_id: str) -> sources.Row:
        return sources.row(synth_id, sources.conversation("Why?", None, f"So it is {synth_id}."))

    shards = [[tiny(f"s{shard}-{index}") for index in range(count)] for shard, count in enumerate(ROWS)]
    return sources.write_source(tmp_path_factory.mktemp("source"), shards, row_group_size=1024)


@pytest.fixture(scope="module")
def undisturbed(source: Path, tmp_path_factory: pytest.TempPathFactory, cli: Cli) -> Undisturbed:
    root = tmp_path_factory.mktemp("undisturbed") / "root"
    began = time.monotonic()
    done = cli("build", "--source", source, "--out", root, "--keep-work", *OPTIONS)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    return Undisturbed(
        root=root,
        seconds=seconds,
        work_bytes=pages(path for path in (root / ".work").rglob("*") if path.is_file()),
        data_bytes=pages(path for split in ("train", "valid") for path in (root / split).iterdir()),
    )


def pages(paths: Iterator[Path]) -> int:
    """What files take on a tmpfs: whole pages."""
    return sum(-(-path.stat().st_size // 4096) * 4096 for path in paths)


class Build:
    """A running `spanloom build` in a process group of its own, all of whose processes can be found."""

    def __init__(self, source: Path, root: Path, log: Path, *options: str, cold: bool = False) -> None:
        self.root, self.log = root, log
        with log.open("wb") as stream:
            arguments = ("build", "--source", source, "--out", root, *OPTIONS, *options)
            streams = (stream.fileno(), stream.fileno())
            self.process = warm.start("spanloom", *arguments, env=os.environ, streams=streams, cold=cold)

    def said(self) -> str:
        return self.log.read_text()

    def processes(self) -> list[psutil.Process]:
        """Every living process of this build's session, whoever its parent is now."""
        return [process for process in psutil.process_iter(["pid"]) if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE
        except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            return False

    def workers(self) -> list[psutil.Process]:
        """The pool's processes, without multiprocessing's resource tracker."""
        others = [process for process in self.processes() if process.pid != self.process.pid]
        workers = []
        for process in others:
            with suppress(psutil.NoSuchProcess):
                if not any("resource_tracker" in word for word in process.cmdline()):
                    workers.append(process)
        return workers

    def until(self, seen: Callable[[], Any]) -> None:
        """Returns as soon as `seen()`; fails when the build ends before."""
        while not seen():
            assert self.process.poll() is None, f"ended with {self.process.returncode} too early: {self.said()}"
            time.sleep(0.002)

    def signal_group(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def wait(self) -> int:
        """The exit code, and all of the build's processes gone."""
        code = self.process.wait()
        deadline = time.monotonic() + PATIENCE
        while left := self.processes():
            assert time.monotonic() < deadline, f"still alive after the build has ended: {left}"
            time.sleep(0.02)
        return code


@pytest.fixture
def start(source: Path, tmp_path: Path) -> Iterator[Callable[..., Build]]:
    """Starts builds of `source`; whatever is left of them at the end of the test is killed."""
    builds: list[Build] = []

    def run(root: Path, *options: str, cold: bool = False) -> Build:
        builds.append(Build(source, root, tmp_path / f"log-{len(builds)}.txt", *options, cold=cold))
        return builds[-1]

    yield run
    for build in builds:
        for process in build.processes():
            process.kill()
        build.process.wait()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def index_lengths(index: Path) -> np.ndarray:
    """The sequence lengths in an `.idx` file, which must be whole: read here from the format alone."""
    data = index.read_bytes()
    magic, version, code, sequences, documents = struct.unpack_from("<9sQBQQ", data)
    assert (magic, version) == (b"MMIDIDX\x00\x00", 1), index
    assert code in (1, 4), index
    assert documents == sequences + 1, index
    assert len(data) == 34 + sequences * (4 + 8) + documents * 8, index
    return np.frombuffer(data, dtype="<i4", count=sequences, offset=34)


def assert_nothing_short(root: Path) -> None:
    """The invariants of a root at any moment: a manifest only over whole files, an `.idx` only by a whole `.bin`."""
    for split in ("train", "valid"):
        for index in (root / split).glob("shard_*.idx"):
            itemsize = {1: 1, 4: 4}[index.read_bytes()[17]]
            assert index.with_suffix(".bin").stat().st_size == int(index_lengths(index).sum()) * itemsize, index
    if (root / "manifest.json").exists():
        shards = sources.content(root)["shards"]
        listed = [file for shard in shards for split in shard["splits"].values() for file in split["files"]]
        assert len(listed) == 4 * 2 * 7
        for file in listed:
            assert sha256(root / file["path"]) == file["sha256"], file["path"]


def assert_same_dataset(root: Path, undisturbed: Undisturbed) -> None:
    files, expected = sources.data_files(root), sources.data_files(undisturbed.root)
    assert sorted(files) == sorted(expected)
    assert [name for name, data in files.items() if data != expected[name]] == []
    assert sources.content(root) == sources.content(undisturbed.root)


def assert_finished(root: Path, undisturbed: Undisturbed) -> None:
    """The dataset is right, and nothing else is left."""
    assert_same_dataset(root, undisturbed)
    assert [path.name for path in root.rglob("*") if ".spanloom-tmp-" in path.name] == []
    assert sorted(path.name for path in root.iterdir()) == [*sources.VIEWS, "train", "valid"]


def assert_finishes(start: Callable[..., Build], root: Path, undisturbed: Undisturbed) -> None:
    """The same command, run again, completes the dataset."""
    build = start(root)
    assert build.wait() == 0, build.said()
    assert_finished(root, undisturbed)


def rendering(root: Path) -> bool:
    return any(root.glob(".work/rendered_*/part_*.json"))


def writing(root: Path) -> bool:
    return any(root.glob("train/.*.spanloom-tmp-*"))


def publishing(root: Path) -> bool:
    return any(root.glob("train/shard_*.bin"))


def validating(root: Path) -> bool:
    return (root / "manifest.pending.json").exists()


def promoted(root: Path) -> bool:
    return (root / "manifest.json").exists()


@pytest.mark.parametrize("stage", [writing, *map(nightly, [rendering, publishing, validating, promoted])])
def test_a_build_killed_in_any_stage_leaves_nothing_short_and_is_finished_by_the_same_command(
    start: Callable[..., Build], undisturbed: Undisturbed, tmp_path: Path, stage: Callable[[Path], bool]
) -> None:
    root = tmp_path / "root"
    build = start(root)
    build.until(lambda: stage(root))
    build.signal_group(signal.SIGKILL)
    build.wait()
    assert_nothing_short(root)
    assert_finishes(start, root, undisturbed)


@pytest.mark.nightly
def test_builds_killed_at_random_points_again_and_again_end_in_the_same_dataset(
    start: Callable[..., Build], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    """At most five kills on a root: of the whole group, the parent, one worker, and SIGTERM to the parent."""
    chance = random.Random(20240917)
    longest_delay = undisturbed.seconds
    kills = roots = 0
    while kills < KILLS:
        root = tmp_path / f"root-{roots}"
        build = start(root)
        began = time.monotonic()
        try:
            code = build.process.wait(timeout=chance.uniform(0, longest_delay))
            longest_delay = min(longest_delay, time.monotonic() - began)  # resumed builds are shorter: follow them
        except subprocess.TimeoutExpired:
            kill(build, ("group", "parent", "worker", "terminate")[kills % 4], chance)
            code = build.wait()
            kills += 1
            assert_nothing_short(root)
            if code == 1:
                assert "a worker process died" in build.said()
            else:  # 0: the worker died when its work was done
                assert code in (0, -signal.SIGKILL, -signal.SIGTERM), build.said()
        if code == 0:
            assert_finished(root, undisturbed)
            roots += 1
        elif kills % 5 == 0:
            assert_finishes(start, root, undisturbed)
            roots += 1


def kill(build: Build, whom: str, chance: random.Random) -> None:
    if whom == "parent":
        build.process.kill()
    elif whom == "terminate":
        build.process.terminate()
    elif whom == "worker" and (workers := build.workers()):
        chance.choice(workers).kill()
    else:
        build.signal_group(signal.SIGKILL)


def test_the_workers_of_a_killed_parent_die_on_their_own(start: Callable[..., Build], tmp_path: Path) -> None:
    root = tmp_path / "root"
    build = start(root)
    build.until(lambda: rendering(root) and len(build.workers()) >= 2)
    workers = build.workers()
    build.process.kill()
    _, alive = psutil.wait_procs(workers, timeout=PATIENCE)
    assert alive == []
    build.wait()


def test_a_crashed_worker_ends_the_build_in_words_and_the_next_run_goes_on(
    start: Callable[..., Build], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    build = start(root)
    build.until(lambda: rendering(root))
    build.workers()[0].kill()
    assert build.wait() == 1
    said = build.said()
    assert "error: a worker process died" in said
    assert "run the same command again" in said
    assert "Traceback" not in said
    assert not (root / "manifest.json").exists()
    assert_nothing_short(root)
    assert_finishes(start, root, undisturbed)


def test_of_two_builds_started_at_once_one_builds_and_the_other_is_refused(
    start: Callable[..., Build], undisturbed: Undisturbed, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    builds = [start(root), start(root)]
    codes = sorted(build.wait() for build in builds)
    assert codes == [0, 1], [build.said() for build in builds]
    (refused,) = (build for build in builds if build.process.returncode == 1)
    assert "another build is running into this root" in refused.said()
    assert str(root) in refused.said()
    assert_finished(root, undisturbed)


@pytest.mark.parametrize("options", [nightly(("--no-resume",)), ("--overwrite",), nightly(("--valid-fraction", "0.2"))])
def test_a_running_build_is_not_disturbed_by_another_whatever_it_asks(
    start: Callable[..., Build], undisturbed: Undisturbed, tmp_path: Path, options: tuple[str, ...]
) -> None:
    root = tmp_path / "root"
    first = start(root)
    first.until(lambda: (root / ".work" / "build.json").exists())
    second = start(root, *options)
    assert second.wait() == 1
    assert "another build is running into this root" in second.said()
    assert first.wait() == 0, first.said()
    assert_finished(root, undisturbed)


@pytest.mark.parametrize("stage", [validating, *map(nightly, [rendering, publishing])])
def test_ctrl_c_exits_with_130_without_a_traceback_and_the_next_run_goes_on(
    start: Callable[..., Build], undisturbed: Undisturbed, tmp_path: Path, stage: Callable[[Path], bool]
) -> None:
    root = tmp_path / "root"
    build = start(root)
    build.until(lambda: stage(root))
    build.signal_group(signal.SIGINT)
    assert build.wait() == 130, build.said()
    assert "Traceback" not in build.said()
    assert "Exception ignored" not in build.said()
    assert "interrupted: the same command resumes from what it had finished" in build.said()
    assert not (root / "manifest.json").exists()
    assert_nothing_short(root)
    assert_finishes(start, root, undisturbed)


@pytest.mark.nightly
def test_ctrl_c_while_the_workers_start_prints_no_traceback(start: Callable[..., Build], tmp_path: Path) -> None:
    """The group's SIGINT reaches workers that are still importing, before they can say what they think of it."""
    for step in range(8):
        root = tmp_path / f"root-{step}"
        build = start(root, cold=True)
        build.until(lambda build=build, step=step: any(cpu_seconds(worker) > 0.02 * step for worker in build.workers()))
        build.signal_group(signal.SIGINT)
        assert build.wait() == 130, build.said()
        assert "Traceback" not in build.said()
        assert not (root / "manifest.json").exists()


def cpu_seconds(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:2])
    except psutil.NoSuchProcess:
        return 0.0


class Disk:
    """A tmpfs of a given size."""

    def __init__(self, mount_point: Path) -> None:
        self.path = mount_point

    def mount(self, size: int, *, remount: bool = False) -> None:
        options = f"remount,size={size}" if remount else f"size={size}"
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "spanloom-test", str(self.path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"a small file system cannot be mounted here (that needs root): {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    try:
        yield Disk(path)
    finally:
        if path.is_mount():
            subprocess.run(["umount", str(path)], check=True)


def test_a_disk_that_is_too_small_by_estimate_is_refused_before_work(start: Callable[..., Build], disk: Disk) -> None:
    disk.mount(1 << 20)
    root = disk.path / "root"
    build = start(root)
    assert build.wait() == 1
    numbers = re.search(r"not enough disk: about ([\d,]+) MB are needed, ([\d,]+) MB are free", build.said())
    assert numbers, build.said()
    needed, free = (int(number.replace(",", "")) for number in numbers.groups())
    assert free == 1
    assert needed > free
    assert "--no-disk-check" in build.said()
    assert "Traceback" not in build.said()
    assert not list(root.glob(".work/rendered_*"))
    assert not (root / "train").exists()


@pytest.mark.parametrize("stage", ["write", nightly("render")])
def test_a_disk_that_fills_up_stops_the_build_in_words_and_once_enlarged_the_build_goes_on(
    start: Callable[..., Build], undisturbed: Undisturbed, disk: Disk, stage: str
) -> None:
    slack = 64 << 10  # folders, the lock, the manifest
    work, data = undisturbed.work_bytes, undisturbed.data_bytes
    disk.mount(work // 2 if stage == "render" else work + slack + data // 2)
    root = disk.path / "root"
    build = start(root, "--no-disk-check")
    assert build.wait() == 1, build.said()
    said = build.said()
    assert f"{stage} …" in said.splitlines()
    assert f"{stage} done" not in said
    assert "No space left on device" in said
    assert "free some space and run the same command again" in said
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    assert not (root / "manifest.json").exists()
    assert not (root / "manifest.pending.json").exists()
    assert_nothing_short(root)
    for part in root.glob(".work/rendered_*/part_*.json"):  # a part that says it stands does
        summary = json.loads(part.read_bytes())
        for name, hashed in summary["rendered_files"].items():
            assert sha256(part.parent / name) == hashed

    disk.mount(4 * (work + data) + (16 << 20), remount=True)
    again = start(root, "--no-disk-check")
    assert again.wait() == 0, again.said()
    assert_finished(root, undisturbed)
