"""The CPUs and the memory that this process may use: those of its container or job, not those of the machine.

In: the limits of the process's cgroup (version 1 or 2) and of each cgroup above it, its CPU affinity, the machine.
Out: a number of CPUs, bytes of memory, and how many workers fit. A pod with a limit of 8 CPUs on a node with 64 has 8.
Memory that was freed is kept for the next batch, or given back to the system.
"""

import ctypes
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

PROC_CGROUP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")


def usable_cpus(membership: Path = PROC_CGROUP, cgroups: Path = CGROUPS) -> int:
    """CPUs that this process may use: the lowest CPU limit of its cgroups, rounded up, and its affinity. At least 1.

    `membership` is /proc/self/cgroup, `cgroups` where the cgroup file systems are mounted.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [
        *(_cpus_v2(_text(folder / "cpu.max")) for folder in _folders(membership, cgroups, "")),
        *(
            _cpus_v2(f"{_text(folder / 'cpu.cfs_quota_us')} {_text(folder / 'cpu.cfs_period_us')}")
            for folder in _folders(membership, cgroups, "cpu")
        ),
    ]
    return max(1, min([affinity, *(math.ceil(limit) for limit in limits if limit is not None)]))


def usable_memory(membership: Path = PROC_CGROUP, cgroups: Path = CGROUPS) -> int:
    """Bytes of memory that this process and its workers may use: the lowest limit of its cgroups, or the machine's."""
    limits = [
        *(_bytes(_text(folder / "memory.max")) for folder in _folders(membership, cgroups, "")),
        *(_bytes(_text(folder / "memory.limit_in_bytes")) for folder in _folders(membership, cgroups, "memory")),
    ]
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *(limit for limit in limits if limit is not None)])


def workers_that_fit(worker_bytes: int, membership: Path = PROC_CGROUP, cgroups: Path = CGROUPS) -> int:
    """How many workers of `worker_bytes` to start: one per CPU, at most as many as fit in memory. As much memory as for
    one worker is left for this process. At least 1.

    With 16 GiB, 64 CPUs and 305 MiB a worker: 16 · 1024 // 305 - 1 = 52.
    """
    room = usable_memory(membership, cgroups) // worker_bytes - 1
    return max(1, min(usable_cpus(membership, cgroups), room))


KEPT_FREE = 512 << 20
"""Bytes that a worker may hold free before it gives memory back to the system."""
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""Parameters of glibc's `mallopt`."""
_FAULTS = OSError, AttributeError, TypeError  # TypeError: Windows has no library of no name


def keep_freed_memory() -> None:
    """Lets this process keep memory that it frees.

    Each batch makes arrays of some megabytes and frees them. glibc gives such memory back at once and asks for it
    again, and the system clears every page of it once more: up to a tenth of the time of rendering.
    """
    with suppress(*_FAULTS):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, KEPT_FREE)


def give_back_freed_memory() -> None:
    """Gives the memory that this process has freed back to the system, in a few milliseconds.

    Loading a tokenizer frees as much as it keeps, among what it keeps: glibc would hold it, in each worker.
    """
    with suppress(*_FAULTS):
        ctypes.CDLL(None).malloc_trim(0)


def _folders(membership: Path, cgroups: Path, controller: str) -> Iterator[Path]:
    """The process's cgroup of a controller and those above it; "" is version 2, which has all controllers in one.

    A line of `membership` is `4:memory:/kubepods/pod1` in version 1, `0::/kubepods/pod1` in version 2. In a container
    the file system often starts at the container's own cgroup, so folders of the path may be missing. Then the root has
    the limits; it is always among the returned folders.
    """
    for line in (_text(membership) or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller not in controllers.split(","):
            continue
        roots = [cgroups / controllers, cgroups / controller] if controller else [cgroups, cgroups / "unified"]
        inner = PurePosixPath(path.lstrip("/"))
        for root in dict.fromkeys(roots):
            yield from (root / folder for folder in (inner, *inner.parents) if ".." not in folder.parts)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


def _cpus_v2(text: str | None) -> float | None:
    """`150000 100000` is 1.5 CPUs; `max 100000` and, in version 1, `-1 100000` mean no limit."""
    quota, _, period = (text or "").partition(" ")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _bytes(text: str | None) -> int | None:
    """`max` means no limit; version 1 writes a number larger than any machine's memory instead."""
    return int(text) if text and text.isdigit() else None
