"""The limits of a container, as the kernel writes them, decide how many workers start; not the cores of the node."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spanloom.machine import usable_cpus, usable_memory, workers_that_fit

MIB = 1 << 20
AFFINITY = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cgroups(directory: Path, membership: str, files: dict[str, str]) -> tuple[Path, Path]:
    """/proc/self/cgroup and /sys/fs/cgroup with these contents."""
    (directory / "membership").write_text(membership)
    for name, text in files.items():
        path = directory / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return directory / "membership", directory / "fs"


V1 = "5:memory:/kubepods/pod1\n3:cpu,cpuacct:/kubepods/pod1\n0::/\n"


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/\n", {"cpu.max": "50000 100000"}),
        ("0::/\n", {"cpu.max": "100000 100000"}),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "100000 100000", "cpu.max": "max 100000"}),
        ("0::/../other\n", {"cpu.max": "100000 100000"}),
        (V1, {"cpu,cpuacct/cpu.cfs_quota_us": "100000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}),
        (V1, {"cpu/kubepods/pod1/cpu.cfs_quota_us": "10000", "cpu/kubepods/pod1/cpu.cfs_period_us": "100000"}),
    ],
)
def test_a_limit_of_up_to_one_cpu_is_one(tmp_path: Path, membership: str, files: dict[str, str]) -> None:
    assert usable_cpus(*cgroups(tmp_path, membership, files)) == 1


@pytest.mark.skipif(AFFINITY < 2, reason="needs two CPUs")
@pytest.mark.parametrize(("quota", "cpus"), [("150000", 2), ("200000", 2), ("100001", 2), ("99999", 1)])
def test_a_part_of_a_cpu_counts_as_one(tmp_path: Path, quota: str, cpus: int) -> None:
    assert usable_cpus(*cgroups(tmp_path, "0::/\n", {"cpu.max": f"{quota} 100000"})) == cpus


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/\n", {"cpu.max": "max 100000", "memory.max": "max"}),
        ("0::/\n", {}),
        ("", {}),
        ("0::/\n", {"cpu.max": "many", "memory.max": ""}),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}),
        (V1, {"memory/memory.limit_in_bytes": "9223372036854771712"}),
        ("0::/\n", {"cpu.max": "99900000 100000", "memory.max": str(1 << 60)}),
    ],
)
def test_without_a_limit_the_machine_counts(tmp_path: Path, membership: str, files: dict[str, str]) -> None:
    places = cgroups(tmp_path, membership, files)
    assert usable_cpus(*places) == AFFINITY
    assert usable_memory(*places) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("0::/\n", {"memory.max": str(900 * MIB)}),
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": str(900 * MIB)}),
        (V1, {"memory/kubepods/pod1/memory.limit_in_bytes": str(900 * MIB)}),
        (V1, {"memory/memory.limit_in_bytes": str(900 * MIB)}),
    ],
)
def test_memory_limits_the_workers(tmp_path: Path, membership: str, files: dict[str, str]) -> None:
    places = cgroups(tmp_path, membership, files)
    assert usable_memory(*places) == 900 * MIB
    assert workers_that_fit(450 * MIB, *places) == 1
    assert workers_that_fit(900 * MIB, *places) == 1
    assert workers_that_fit(1 * MIB, *places) == AFFINITY


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_a_process_that_is_held_to_one_cpu_has_one() -> None:
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from spanloom.machine import usable_cpus; print(usable_cpus())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "1\n"


@contextmanager
def cgroup(controller: str, limits: dict[str, str]) -> Iterator[Path]:
    """A real cgroup with these limits, which is removed after. Skips where this user may make none."""
    top = Path("/sys/fs/cgroup")
    folder = (top if (top / "cgroup.controllers").exists() else top / controller) / f"spanloom-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as fault:
        pytest.skip(f"a cgroup cannot be made: {fault}")
    try:
        try:
            for name, text in limits.items():
                if (folder / name).exists():
                    (folder / name).write_text(text)
        except OSError as fault:
            pytest.skip(f"a limit cannot be set: {fault}")
        if not any((folder / name).exists() for name in limits):
            pytest.skip(f"the controller {controller} is not enabled here")
        yield folder
    finally:
        folder.rmdir()


def said_inside(folder: Path, expression: str) -> str:
    """What a process in the cgroup says."""
    enter = f"open({str(folder / 'cgroup.procs')!r}, 'w').write('0')"
    code = f"{enter}\nfrom spanloom.machine import *\nprint({expression})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.strip()


def test_a_process_in_a_cgroup_of_half_a_cpu_has_one() -> None:
    limits = {"cpu.max": "50000 100000", "cpu.cfs_quota_us": "50000"}
    with cgroup("cpu", limits) as folder:
        assert said_inside(folder, "usable_cpus()") == "1"


def test_a_process_in_a_cgroup_of_900_mib_has_room_for_one_worker_of_450() -> None:
    limits = {"memory.max": str(900 * MIB), "memory.limit_in_bytes": str(900 * MIB)}
    with cgroup("memory", limits) as folder:
        assert said_inside(folder, f"usable_memory(), workers_that_fit({450 * MIB})") == f"{900 * MIB} 1"


FREED = """
from spanloom.machine import give_back_freed_memory

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20

held = [bytearray(50_000) for _ in range(4_000)]
last = bytearray(50_000)  # above the others: glibc keeps what is free below it
before = resident()
held.clear()
kept = resident()
give_back_freed_memory()
print(before, kept, resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_memory_among_used_memory_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    before, kept, after = map(int, done.stdout.split())
    assert before - kept < 20  # otherwise there was nothing to give back
    assert before - after > 150
