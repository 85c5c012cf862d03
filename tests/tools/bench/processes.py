"""A command in a fresh process, watched from outside.

In: a command. Out: its wall time, the times of the stages it names on stderr, and the memory of its processes.

On Linux memory is read from /proc/PID/status every `EVERY` seconds: `VmHWM`, the kernel's own record of the largest
resident set, for the whole run, `VmRSS` and `RssAnon` for each stage. Elsewhere psutil's resident set stands for all.
"""

import compileall
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

EVERY = 0.05
LOOK_FOR_CHILDREN = 0.5
LINUX = sys.platform == "linux"
METHOD = (
    f"VmHWM from /proc (VmRSS and RssAnon a stage, sampled every {EVERY * 1000:.0f} ms)"
    if LINUX
    else f"resident set, sampled every {EVERY * 1000:.0f} ms by psutil"
)
_STAGE = re.compile(r"^(\w+) (…$|done in )")


def compile_sources(sources: Path) -> None:
    """Writes the bytecode beside the modules in `sources`, as an installation does.

    Without it, where Python is told to write none (PYTHONDONTWRITEBYTECODE), each process would compile some 500
    modules, which takes as long as importing what they import.
    """
    compileall.compile_dir(sources, quiet=1)


@dataclass(kw_only=True)
class Memory:
    """Peaks in bytes of the largest process of a role. `stages`: stage → peak resident, peak anonymous."""

    peak: int = 0
    stages: dict[str, dict[str, int]] = field(default_factory=dict)

    def take(self, stage: str, sample: dict[str, int]) -> None:
        self.peak = max(self.peak, sample["peak"])
        there = self.stages.setdefault(stage, {"resident": 0, "anonymous": 0})
        for name in there:
            there[name] = max(there[name], sample[name])


@dataclass(kw_only=True)
class Run:
    """A finished command. `torch_in_worker`: whether a render worker mapped torch; None where that cannot be seen, or
    there was no worker."""

    seconds: float
    stages: dict[str, float]
    parent: Memory
    worker: Memory
    validator: Memory
    torch_in_worker: bool | None
    stdout: str


def run(command: list[str], environment: dict[str, str]) -> Run:
    """Runs `command` to its end. Raises RuntimeError with its stderr when it fails."""
    stages: dict[str, float] = {}
    stage = ["start"]
    lines: list[str] = []
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=environment
    )

    def listen() -> None:
        """Keeps the time of `render …` and `render done in 1.2 s`."""
        since: dict[str, float] = {}
        for line in process.stderr or ():
            lines.append(line)
            if found := _STAGE.match(line.strip()):
                name, now = found[1], time.monotonic()
                if found[2] == "…":
                    since[name] = now
                    stage[0] = name
                else:
                    stages[name] = now - since.get(name, now)

    listener = threading.Thread(target=listen)
    listener.start()
    out: list[str] = []
    collector = threading.Thread(target=lambda: out.append(process.stdout.read() if process.stdout else ""))
    collector.start()
    family = _Family(process.pid)
    try:
        while process.poll() is None:
            family.look(stage[0])
            time.sleep(EVERY)
    finally:
        process.kill()  # after Ctrl-C; a process that has ended does not mind
    seconds = time.monotonic() - began
    listener.join()
    collector.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}:\n{''.join(lines)}")
    return Run(
        seconds=seconds,
        stages=stages,
        parent=family.parent,
        worker=family.worker,
        validator=family.validator,
        torch_in_worker=family.torch_in_worker,
        stdout=out[0],
    )


class _Family:
    """A process, its render workers and its validator; what else it starts (the resource tracker, git) is left out.

    Both kinds of children are spawned in the same way. `spanloom build` starts the validator before any worker, so the
    oldest is it.
    """

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._spawned: list[psutil.Process] = []
        self._looked = 0.0
        self.parent, self.worker, self.validator = Memory(), Memory(), Memory()
        self.torch_in_worker: bool | None = None

    def look(self, stage: str) -> None:
        if time.monotonic() - self._looked > LOOK_FOR_CHILDREN:
            self._looked = time.monotonic()
            self._find_spawned()
        if sample := _memory(self._process):
            self.parent.take(stage, sample)
        for age, child in enumerate(self._spawned):
            if sample := _memory(child):
                (self.worker if age else self.validator).take(stage, sample)

    def _find_spawned(self) -> None:
        known = {child.pid for child in self._spawned}
        try:
            children = self._process.children(recursive=True)
        except psutil.Error:
            return
        for child in children:
            if child.pid in known:
                continue
            try:
                if "--multiprocessing-fork" in child.cmdline():
                    self._spawned.append(child)
            except psutil.Error:
                continue
        self._spawned.sort(key=lambda child: (child.create_time(), child.pid))  # psutil keeps it: gone or not
        for worker in self._spawned[1:] if LINUX else ():
            try:
                found = "libtorch" in Path(f"/proc/{worker.pid}/maps").read_text()
            except OSError:
                continue
            self.torch_in_worker = bool(self.torch_in_worker) or found


def _memory(process: psutil.Process) -> dict[str, int] | None:
    """Peak, resident and anonymous bytes now; None when the process is gone."""
    try:
        if not LINUX:
            resident = process.memory_info().rss
            return {"peak": resident, "resident": resident, "anonymous": resident}
        fields: dict[str, Any] = {}
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("VmHWM", "VmRSS", "RssAnon"):
                fields[name] = int(value.split()[0]) * 1024
        return {"peak": fields["VmHWM"], "resident": fields["VmRSS"], "anonymous": fields["RssAnon"]}
    except (psutil.Error, OSError, KeyError):
        return None
