"""Commands and worker processes as forks of one process that has imported everything; fresh ones cost seconds.

In: a module and its arguments. Out: what `subprocess.run` returns. The forked process is multiprocessing's fork server,
with `warm_imports` preloaded. With `SPANLOOM_TEST_COLD=1` all processes are fresh.

What differs from a fresh process: what is read when the interpreter starts is the server's (`READ_AT_START`: a command
with other values is fresh), and at its end a command runs its
exit functions but does not take its libraries apart.
"""

import atexit
import importlib
import multiprocessing
import multiprocessing.process
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkContext, ForkServerContext, ForkServerProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, Never, TextIO

import huggingface_hub.constants

from spanloom import workers

COLD = os.environ.get("SPANLOOM_TEST_COLD", "") not in ("", "0")
"""Whether all processes are fresh."""

READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "OMP_", "OPENBLAS_", "MPL", "MALLOC_")
"""Beginnings of the variables that an interpreter or a library reads once."""

ASSET = "O200K_HARMONY_VOCAB_PATH"

_TESTS = str(Path(__file__).parents[1])

Done = subprocess.CompletedProcess[str]


class _Process(ForkServerProcess):
    """A fork with the environment and the streams that a fresh process would inherit now."""

    streams: dict[int, int]
    """Its descriptor 0, 1 or 2 → the one here. Without 0, its stdin is /dev/null."""
    closed: Collection[int] = ()
    """Which of descriptors 0, 1 and 2 are closed instead."""

    def start(self) -> None:
        self._environment = dict(os.environ)
        super().start()

    def __getstate__(self) -> dict[str, Any]:
        streams = vars(self).get("streams", {1: 1, 2: 2})
        return {**self.__dict__, "_inherited": {number: DupFd(stream) for number, stream in streams.items()}}

    def run(self) -> None:
        for number, inherited in self._inherited.items():
            descriptor = inherited.detach()
            os.dup2(descriptor, number)
            os.close(descriptor)
        _close(self.closed)
        os.environ.clear()
        os.environ.update(self._environment)
        tempfile.tempdir = None  # the server's, from another environment
        super().run()


class _Forked(ForkServerContext):
    """For this process: workers are forks of the server, with the product's locks."""

    Process = _Process
    Lock = workers._SpawnContext.Lock  # type: ignore[assignment]
    BoundedSemaphore = workers._SpawnContext.BoundedSemaphore  # type: ignore[assignment]


class ForkedAgain(ForkContext):
    """For a command, a fork already: workers are forks of it."""

    Lock = workers._SpawnContext.Lock  # type: ignore[assignment]
    BoundedSemaphore = workers._SpawnContext.BoundedSemaphore  # type: ignore[assignment]


@cache
def start_server(asset: str) -> str:
    """Starts the process that is forked, and returns its address. It ends with this one."""
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    if server._forkserver_address is not None:
        return str(server._forkserver_address)
    environment = {
        "PYTHONPATH": with_tests(os.environ)["PYTHONPATH"],
        # None may have threads before it forks.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        ASSET: asset,
    }
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        forkserver.set_forkserver_preload(["support.warm_imports"])
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
    return str(server._forkserver_address)


def is_running() -> bool:
    """Whether this process has a server to fork from."""
    return not COLD and forkserver._forkserver._forkserver_address is not None  # type: ignore[attr-defined]


def join_server(address: str) -> None:
    """From here on, forks come from a server that another process started: importing everything takes 8 s of CPU."""
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    server._forkserver_address = address
    server._forkserver_alive_fd = os.pipe()[
        1
    ]  # children hold it; the server itself ends with the process that started it
    server.ensure_running = resource_tracker.ensure_running


def run(
    module: str,
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str],
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    closed: Collection[int] = (),
    stdin: int | None = None,
) -> Done:
    """`python -m MODULE ARGUMENTS` with the environment `env`, to its end; its output as text.

    `stdin` is a descriptor, or None for /dev/null. `stdout` and `stderr` are descriptors, or `subprocess.PIPE` to have
    what is written to them; `closed` names those of descriptors 0, 1 and 2 that are closed instead.
    """
    process = piped(module, *arguments, cwd=cwd, env=env, stdout=stdout, stderr=stderr, closed=closed, stdin=stdin)
    output, errors = process.communicate()
    return Done(
        [module, *map(str, arguments)],
        process.wait(),
        stdout=output if stdout == subprocess.PIPE else None,
        stderr=errors if stderr == subprocess.PIPE else None,
    )


def run_code(code: str, *arguments: object, cwd: Path | None = None, **environment: str) -> Done:
    """`python -c CODE ARGUMENTS` to its end, for code that may find all modules imported."""
    return run("support.script", "-c", code, *arguments, cwd=cwd, env={**os.environ, **environment})


def piped(
    module: str,
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str],
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    closed: Collection[int] = (),
    cold: bool = COLD,
    stdin: int | None = None,
) -> "Piped":
    """Starts `python -m MODULE ARGUMENTS` as `run` does, and leaves it at work."""
    readers, writers = zip(*(os.pipe() for _ in "ab"), strict=True)
    streams = (
        writers[0] if stdout == subprocess.PIPE else stdout,
        writers[1] if stderr == subprocess.PIPE else stderr,
    )
    process = start(module, *arguments, cwd=cwd, env=env, streams=streams, closed=closed, cold=cold, stdin=stdin)
    for writer in writers:
        os.close(writer)
    return Piped(process, os.fdopen(readers[0]), os.fdopen(readers[1]))


def start(
    module: str,
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str],
    streams: tuple[int, int],
    closed: Collection[int] = (),
    cold: bool = COLD,
    stdin: int | None = None,
) -> "subprocess.Popen[bytes] | Fork":
    """Starts `python -m MODULE ARGUMENTS` in a session of its own; `streams` are descriptors of stdout and stderr.

    `cold`: as a fresh process. Ctrl-C ends it, even where this process was born with Ctrl-C ignored.
    """
    words = [str(argument) for argument in arguments]
    if cold or COLD or ASSET not in env or _at_start(env) != _at_start(os.environ):
        return subprocess.Popen(
            [sys.executable, "-m", module, *words],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=streams[0],
            stderr=streams[1],
            cwd=cwd,
            env=with_tests(env) if module.startswith("support.") else env,
            start_new_session=True,
            preexec_fn=lambda: _before_start(closed),
        )
    start_server(env[ASSET])
    process = _Forked().Process(target=become, args=(module, words, str(cwd or Path.cwd()), dict(env)))
    process.streams = {1: streams[0], 2: streams[1], **({} if stdin is None else {0: stdin})}
    process.closed = closed
    process.start()
    return Fork(process)


class Fork:
    """A command that was forked, as `subprocess.Popen` has it."""

    def __init__(self, process: _Process) -> None:
        assert process.pid is not None
        self._process, self.pid = process, process.pid
        self.kill, self.terminate = process.kill, process.terminate

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self._process.name, timeout)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        """As of `subprocess.Popen`: nothing, where the process has ended meanwhile."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Piped:
    """A command at work with pipes behind its stdout and stderr, as `subprocess.Popen` has it."""

    def __init__(self, process: "subprocess.Popen[bytes] | Fork", stdout: TextIO, stderr: TextIO) -> None:
        self._process, self.pid = process, process.pid
        self.stdout, self.stderr = stdout, stderr
        self.poll, self.wait, self.send_signal = process.poll, process.wait, process.send_signal
        self.kill, self.terminate = process.kill, process.terminate

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def communicate(self) -> tuple[str, str]:
        """What is left of stdout and stderr; the process has ended then."""
        with self.stdout, self.stderr, ThreadPoolExecutor(1) as thread:
            read = thread.submit(self.stderr.read)
            output, errors = self.stdout.read(), read.result()
        self.wait()
        return output, errors


def until_closed(terminal: int) -> str:
    """All that is shown on the other side of the terminal `terminal`; closes it."""
    shown = b""
    with suppress(OSError):  # EIO: the last process of the terminal has ended
        while data := os.read(terminal, 1 << 16):
            shown += data
    os.close(terminal)
    return shown.decode(errors="replace")


def _before_start(closed: Collection[int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _close(closed)


def _close(descriptors: Collection[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def with_tests(env: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a fresh interpreter finds the modules of this package."""
    return {**env, "PYTHONPATH": os.pathsep.join(filter(None, [_TESTS, env.get("PYTHONPATH", "")]))}


def _at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START)}


def become(module: str, words: list[str], folder: str, environment: dict[str, str]) -> Never:
    """In a fork whose streams are set: `python -m MODULE WORDS` to its end."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    importlib.reload(huggingface_hub.constants)  # of HF_ENDPOINT and the like
    # A process of its own, no worker of another.
    multiprocessing.process._parent_process = None  # type: ignore[attr-defined]
    multiprocessing.process._current_process = sys.modules["support.warm_imports"].MAIN_PROCESS  # type: ignore[attr-defined]
    workers._SPAWN = ForkedAgain()  # type: ignore[assignment]
    # Objects for these streams: the server's know whether its own can seek.
    sys.stdin = _opened(0, "r")
    sys.stdout = _opened(1, "w")
    sys.stderr = _opened(2, "w", errors="backslashreplace", buffering=1)
    sys.argv = [module, *words]
    code = 1
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        traceback.print_exc()
        code = 120  # the interpreter's
    with suppress(AttributeError, OSError):
        sys.stderr.flush()
    os._exit(code)


def _opened(descriptor: int, mode: str, **options: Any) -> Any:
    """As the interpreter does it: None where the descriptor is closed."""
    with suppress(OSError):
        return os.fdopen(descriptor, mode, closefd=False, **options)


def fork_workers(asset: str) -> None:
    """From here on, worker processes of this process are forks too."""
    if not COLD:
        start_server(asset)
        workers._SPAWN = _Forked()  # type: ignore[assignment]
