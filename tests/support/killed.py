"""A function run in a process of its own that is killed before a given change of the file system.

In: a function, the number of the change. Out: whether the process came so far. A forked child counts the changes that
Python itself announces (audit events) and ends without any clean-up, as SIGKILL would end it.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from spanloom import workers
from support import warm
from support.nightly import NIGHTLY

STRIDE = 1 if NIGHTLY else 3
"""How far apart the changes are that trials are killed before: nightly takes each, `make test` each third."""

_CHANGES = {"os.remove", "os.rename", "os.link", "os.mkdir", "os.rmdir", "os.truncate", "os.symlink"}
_DONE, _KILLED, _FAILED = 0, 99, 98


def killed_before(change: int, work: Callable[[], Any]) -> bool:
    """Runs `work` in a child that ends before its change number `change`, from 1. Returns whether it was ended so;
    raises AssertionError where `work` failed."""
    child = os.fork()
    if child == 0:
        code = _FAILED
        try:
            _end_before(change)
            work()
            code = _DONE
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (_DONE, _KILLED), f"the work failed, killed before change {change}: exit code {code}"
    return code == _KILLED


def changes_of(work: Callable[[], Any]) -> int:
    """The number of changes that `work` makes, in a child. Raises AssertionError where it failed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        made, code = 0, _FAILED

        def count() -> None:
            nonlocal made
            made += 1

        try:
            _at_changes(count)
            work()
            os.write(write, str(made).encode())
            code = _DONE
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as counted:
        text = counted.read()
    assert os.waitpid(child, 0)[1] == _DONE, "the work failed"
    return int(text)


def _end_before(change: int) -> None:
    left = change

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os._exit(_KILLED)

    _at_changes(count)


def _at_changes(call: Callable[[], None]) -> None:
    """Calls a function before each change that this process makes. Its workers, which are forks of it, are not told."""
    workers._SPAWN = warm.ForkedAgain()  # type: ignore[assignment]
    own = os.getpid()

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if os.getpid() != own:
            return
        writes = event == "open" and bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        if event in _CHANGES or writes:
            call()

    sys.addaudithook(watch)
