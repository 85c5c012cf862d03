"""Runs `spanloom` commands one after another, each in a fork of a process that has imported everything.

In: a JSON line for each run, over a Unix socket whose address is the argument. Out: a JSON line. `driver` starts it, as
a fork where tests have a process with everything imported already.

A command takes seconds to import what it needs and a fork takes milliseconds, which is what makes it possible to try
every file-system change of a build. What differs from a process of its own: see `support.warm`.
With `own_process` nothing differs.
"""

import errno
import importlib
import json
import os
import resource
import select
import socket
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from support import warm
from tools.chaos import supervisor

MOST_MEMORY = 3 << 30
"""Bytes that a command may map beyond what it begins with: many times what small data needs."""

_CREATING = "open creat mkdir mknod link symlink"
_WRITING = "write pwrite writev pwritev sendfile copy_file_range fallocate"
TAKES_SPACE = frozenset(f"{_CREATING} {_WRITING}".split())
"""Calls that a full disk refuses again and again, until somebody makes room."""


def main() -> None:
    supervisor.adopt_orphans()
    warnings.simplefilter("ignore")
    importlib.import_module("support.warm_imports")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        with connection.makefile("rw") as lines:
            print(json.dumps({"ready": True}), file=lines, flush=True)
            for line in lines:
                print(json.dumps(run(**json.loads(line))), file=lines, flush=True)


def run(
    *,
    arguments: list[str],
    folder: str,
    log: str,
    environment: dict[str, str],
    watched: str | None,
    fault: dict[str, Any] | None,
    seconds: float,
    own_process: bool,
) -> dict[str, Any]:
    """One command in `folder`, its output in the file `log`. See `driver.Run` for what comes back."""
    ours, theirs = socket.socketpair()
    began = time.monotonic()
    child = os.fork()
    if not child:
        try:
            ours.close()
            _become(arguments, folder, log, environment, theirs if watched else None, own_process)
        finally:
            os._exit(255)
    theirs.close()
    decide = Fault(**(fault or {}))
    in_time = True

    def left() -> float:
        return seconds - (time.monotonic() - began)

    if watched:
        listener = supervisor.receive_listener(ours)
        in_time = supervisor.supervise(listener, child, Path(watched), decide, deadline=left)
        os.close(listener)
    status, ended = _wait(child, left)
    in_time = in_time and ended
    ours.close()
    return {
        "code": os.waitstatus_to_exitcode(status),
        "in_time": in_time,
        "changes": decide.changes,
        "fired": decide.fired,
        "seconds": round(time.monotonic() - began, 3),
    }


def _wait(child: int, left: Callable[[], float]) -> tuple[int, bool]:
    """The command's exit status, and whether it ended by itself in time. None of its processes is left after this."""
    process = os.pidfd_open(child)
    ended = bool(select.select([process], [], [], max(left(), 0))[0])
    os.close(process)
    supervisor.kill_group(child)
    status = os.waitpid(child, 0)[1]
    # Its workers come to this process when their parent is gone: a lock is theirs until they are, too.
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-child, 0)
    return status, ended


def _limit_memory() -> None:
    """What reads without end must fail, and not take the machine's memory from everything else."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


class Fault:
    """What happens at which change: `at` is the change as text, `what` is `kill` or the name of an errno.

    `number` is another way to say it, counted from 1. With `lasting` every later call that takes space fails as well.
    """

    def __init__(
        self, *, at: str | None = None, number: int | None = None, what: str = "kill", lasting: bool = False
    ) -> None:
        self.changes: list[str] = []
        self.fired: list[str] = []
        self._at, self._number, self._lasting = at, number, lasting
        self._answer = supervisor.KILL if what == "kill" else getattr(errno, what)

    def __call__(self, change: supervisor.Change) -> supervisor.Answer:
        said = str(change)
        self.changes.append(said)
        here = said == self._at or len(self.changes) == self._number
        if not here and not (self._lasting and self.fired and change.call in TAKES_SPACE):
            return supervisor.LET
        self.fired.append(said)
        return int(self._answer)


def _become(
    arguments: list[str],
    folder: str,
    log: str,
    environment: dict[str, str],
    channel: socket.socket | None,
    own_process: bool,
) -> None:
    """In the fork: the command itself, to its end."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _limit_memory()
    if channel is not None:
        supervisor.listen(channel)
        channel.close()
    environment = {**os.environ, **environment}
    if own_process:
        os.setsid()
        os.chdir(folder)
        os.closerange(3, 100)
        os.execve(sys.executable, [sys.executable, "-m", "spanloom", *arguments], environment)
    warm.become("spanloom", arguments, folder, environment)


if __name__ == "__main__":
    main()
