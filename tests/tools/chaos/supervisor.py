"""Sees every file-system change of a process tree before it is made, and may forbid it or end the tree.

In: a process that called `listen` on itself and then runs anything at all. Out: a `Change` for each system call that
would change a file below the watched folder, whichever process, thread or native library makes it; the answer given to
it (`Let`, an errno, or `KILL`) is what happens.

The kernel's seccomp user notification does the work: a filter that children inherit stops each such call and asks the
supervisor, which is an ordinary process. No privilege, compiler or tracer is needed. x86-64 Linux 5.5 or newer.
"""

import array
import ctypes
import errno
import fcntl
import os
import platform
import re
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SECCOMP = 317
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_CONTINUE = 1
_NOTIFICATION = struct.Struct("<QIIiIQ6Q")
_ANSWER = struct.Struct("<QqiI")
_AUDIT_ARCH_X86_64 = 0xC000003E
_AT_FDCWD = -100

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

# number → (name, what its arguments mean). f: a file descriptor; p: a path; d: the folder that the next path starts at;
# D: the same for the path before the last; -: nothing to look at.
_CALLS = {
    1: ("write", "f"),
    2: ("open", "p"),
    9: ("mmap", "----f"),
    18: ("pwrite", "f"),
    20: ("writev", "f"),
    40: ("sendfile", "f"),
    74: ("fsync", "f"),
    75: ("fdatasync", "f"),
    76: ("truncate", "p"),
    77: ("ftruncate", "f"),
    82: ("rename", "pp"),
    83: ("mkdir", "p"),
    84: ("rmdir", "p"),
    85: ("creat", "p"),
    86: ("link", "pp"),
    87: ("unlink", "p"),
    88: ("symlink", "-p"),
    90: ("chmod", "p"),
    91: ("fchmod", "f"),
    92: ("chown", "p"),
    93: ("fchown", "f"),
    94: ("lchown", "p"),
    132: ("utime", "p"),
    133: ("mknod", "p"),
    188: ("setxattr", "p"),
    189: ("lsetxattr", "p"),
    190: ("fsetxattr", "f"),
    197: ("removexattr", "p"),
    198: ("lremovexattr", "p"),
    199: ("fremovexattr", "f"),
    235: ("utimes", "p"),
    257: ("open", "dp"),
    258: ("mkdir", "dp"),
    259: ("mknod", "dp"),
    260: ("chown", "dp"),
    261: ("utimes", "dp"),
    263: ("unlink", "dp"),
    264: ("rename", "dpdp"),
    265: ("link", "dpdp"),
    266: ("symlink", "-dp"),
    268: ("chmod", "dp"),
    280: ("utimes", "dp"),
    285: ("fallocate", "f"),
    296: ("pwritev", "f"),
    316: ("rename", "dpdp"),
    326: ("copy_file_range", "--f"),
    328: ("pwritev", "f"),
    437: ("open", "dp"),
    452: ("chmod", "dp"),
}
_OPEN_FLAGS = {2: 1, 257: 2}
"""Calls that change something only with some flags, and which argument holds them."""
_MMAP = 9
_UNLINKAT = 263

LET = 0
KILL = -1
Answer = int
"""`LET` the call happen, `KILL` the process group before it happens, or the errno that it fails with."""

_RANDOM = (
    (re.compile(r"spanloom-tmp-[A-Za-z0-9_]+"), "spanloom-tmp-*"),
    (re.compile(r"\bspanloom-[a-z]*-?[a-z0-9_]{8}\b"), "spanloom-*"),
    (re.compile(r"\btmp[a-z0-9_]{8}\b"), "tmp*"),
    (re.compile(r"^tmp/[a-z0-9_]{8}$"), "tmp/*"),
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One system call that would change something: `paths` are relative to the watched folder, random parts as `*`.

    `occurrence` counts calls of the same name and paths, from 1: together they name a point that is the same from run
    to run, whatever the order in which processes come to it.
    """

    call: str
    paths: tuple[str, ...]
    occurrence: int

    def __str__(self) -> str:
        return f"{self.call} {' -> '.join(self.paths)} #{self.occurrence}"


def supported() -> str | None:
    """Why this machine cannot supervise, or None when it can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"needs Linux on x86-64, this is {platform.system()} on {platform.machine()}"
    actions = Path("/proc/sys/kernel/seccomp/actions_avail")
    if not actions.is_file() or "user_notif" not in actions.read_text().split():
        return "the kernel has no seccomp user notification"
    return None


def listen(channel: socket.socket) -> None:
    """Puts this process, which must have one thread, and all it will start under supervision through `channel`."""
    program = _program()
    filters = ctypes.create_string_buffer(b"".join(program))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(filters)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    # Without the second flag (Linux 5.19) a signal may interrupt a call that the supervisor already looks at.
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        listener = libc.syscall(_SECCOMP, _SET_MODE_FILTER, flags, header)
        if listener >= 0:
            break
    else:
        raise OSError(ctypes.get_errno(), "seccomp(SECCOMP_SET_MODE_FILTER)")
    channel.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])
    os.close(listener)


def _program() -> list[bytes]:
    """The filter: the system calls of `_CALLS` are asked about, with the flags that matter; others go through."""
    load, equal, any_bit, answer = 0x20, 0x15, 0x45, 0x06
    notify, allow = 0x7FC00000, 0x7FFF0000

    def statement(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
        return struct.pack("=HBBI", code, then, otherwise, value)

    program = [
        statement(load, 4),
        statement(equal, _AUDIT_ARCH_X86_64, then=1),
        statement(answer, allow),
        statement(load, 0),
    ]
    for number in _CALLS:
        if number in _OPEN_FLAGS:
            program += [
                statement(equal, number, otherwise=4),
                statement(load, 16 + 8 * _OPEN_FLAGS[number]),
                statement(any_bit, _WRITES, otherwise=1),
                statement(answer, notify),
                statement(answer, allow),
            ]
        elif number == _MMAP:  # shared and writable
            program += [
                statement(equal, number, otherwise=6),
                statement(load, 16 + 8 * 2),
                statement(any_bit, 2, otherwise=3),
                statement(load, 16 + 8 * 3),
                statement(any_bit, 1, otherwise=1),
                statement(answer, notify),
                statement(answer, allow),
            ]
        else:
            program += [statement(equal, number, otherwise=1), statement(answer, notify)]
    return [*program, statement(answer, allow)]


def receive_listener(channel: socket.socket) -> int:
    """The other end of `listen`: the descriptor that `supervise` takes. Raises EOFError when the process is gone."""
    _, ancillary, _, _ = channel.recvmsg(1, socket.CMSG_LEN(4))
    if not ancillary:
        raise EOFError("the process ended before it was under supervision")
    return int(array.array("i", ancillary[0][2])[0])


def supervise(
    listener: int, group: int, watched: Path, decide: Callable[[Change], Answer], *, deadline: Callable[[], float]
) -> bool:
    """Answers every call of the process group `group` until none of its processes is left.

    `decide` is asked for each change below `watched`. Returns False when `deadline()` seconds were over before: then
    the group is killed.
    """
    seen: dict[tuple[str, tuple[str, ...]], int] = {}
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        left = deadline()
        if left <= 0:
            kill_group(group)
            return False
        for _, event in poll.poll(min(left, 1.0) * 1000):
            if event & select.POLLIN:
                _answer_one(listener, group, watched, decide, seen)
            elif event & (select.POLLHUP | select.POLLERR):
                return True


def kill_group(group: int) -> None:
    """Ends all of a process group, as loss of power would."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes this process the parent of descendants whose own parent ends, so that it can wait for them."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _answer_one(
    listener: int,
    group: int,
    watched: Path,
    decide: Callable[[Change], Answer],
    seen: dict[tuple[str, tuple[str, ...]], int],
) -> None:
    buffer = bytearray(_NOTIFICATION.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except OSError as gone:
        if gone.errno in (errno.ENOENT, errno.EINTR):  # the process ended in between
            return
        raise
    identity, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
    name, shape = _CALLS[number]
    if number == _UNLINKAT and arguments[2] & 0x200:
        name = "rmdir"
    answer = LET
    paths = _relative(tuple(_paths(pid, shape, arguments)), watched)
    if paths:
        key = (name, paths)
        seen[key] = seen.get(key, 0) + 1
        answer = decide(Change(call=name, paths=paths, occurrence=seen[key]))
    if answer == KILL:
        kill_group(group)
        return
    flags = _CONTINUE if answer == LET else 0
    try:
        fcntl.ioctl(listener, _SEND, _ANSWER.pack(identity, 0, -answer if answer > 0 else 0, flags))
    except OSError as gone:
        if gone.errno != errno.ENOENT:
            raise


def _paths(pid: int, shape: str, arguments: list[int]) -> Iterator[str]:
    """The absolute paths that a call is about; nothing for sockets, pipes and processes that are gone."""
    folder = _AT_FDCWD
    try:
        for kind, argument in zip(shape, arguments, strict=False):
            if kind == "d":
                folder = ctypes.c_int32(argument & 0xFFFFFFFF).value
            elif kind == "f":
                descriptor = ctypes.c_int32(argument & 0xFFFFFFFF).value
                if descriptor >= 0 and (found := str(Path(f"/proc/{pid}/fd/{descriptor}").readlink())).startswith("/"):
                    yield found.removesuffix(" (deleted)")
            elif kind == "p":
                name = _string(pid, argument)
                if not name.startswith("/"):
                    start = f"/proc/{pid}/cwd" if folder == _AT_FDCWD else f"/proc/{pid}/fd/{folder}"
                    name = f"{Path(start).readlink()}/{name}"
                yield os.path.normpath(name)
                folder = _AT_FDCWD
    except OSError as gone:
        if gone.errno not in (errno.ENOENT, errno.ESRCH, errno.EIO):  # what the end of a process looks like from here
            raise


def _string(pid: int, address: int) -> str:
    """A path in the memory of another process."""
    data = b""
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        while b"\0" not in data and len(data) < 4096:
            memory.seek(address + len(data))
            # Up to the end of a page: the next one may not be mapped.
            data += memory.read(4096 - (address + len(data)) % 4096)
    return os.fsdecode(data.split(b"\0", 1)[0])


def _relative(paths: tuple[str, ...], watched: Path) -> tuple[str, ...]:
    """Paths below the watched folder, relative, random parts of names as `*`; nothing when none of them lies there."""
    root = f"{watched}/"
    if not any(f"{path}/".startswith(root) for path in paths):
        return ()
    found = []
    for path in paths:
        name = f"{path}/".removeprefix(root).rstrip("/") or "."
        for pattern, replacement in _RANDOM:
            name = pattern.sub(replacement, name)
        found.append(name)
    return tuple(found)
