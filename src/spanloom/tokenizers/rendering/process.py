"""The client of the template process: one for each process, started when it is first needed.

In: the source of a template, values. Out: a `Reply`. Raises TemplateLimitError where a limit ends the template process,
which the next request starts again. Threads share it; a fork starts its own.
"""

import os
import re
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from math import ceil
from multiprocessing.util import Finalize
from pathlib import Path
from typing import IO, Any, NoReturn

from spanloom.errors import EXIT_TEMPORARY, SpanloomError
from spanloom.tokenizers.rendering import wire
from spanloom.tokenizers.rendering.wire import GoneError, Limits, Reply

SECONDS_VARIABLE = "SPANLOOM_TEMPLATE_SECONDS"
"""The environment variable with the deadline of one rendering."""

_START_SECONDS = 60
_STEP_SECONDS = 0.5
"""How long the process may take to begin to say where it is."""

_MOST_READ = 1 << 16
"""Bytes that are read of what it says."""

_CODE = "import sys; sys.path[:] = sys.argv[5:]; from spanloom.tokenizers.rendering.serve import main; main()"
_ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "TZ")
"""What Python may need to start. Everything else stays here, such as keys of stores."""

_MAX_KNOWN = 64
"""Templates that the process keeps."""

_FRAME = re.compile(r'File "<template>", line (\d+)')


class TemplateLimitError(SpanloomError):
    """A template reached a limit. It stops the command, and is never counted as a refusal."""


class LimitedCallError(SpanloomError):
    """A function reached a limit, or ended its process."""


class TemplateDelayError(TemplateLimitError):
    """A template that had rendered other conversations ran into the deadline: the load of the machine may be why."""

    exit_code = EXIT_TEMPORARY


@dataclass(frozen=True)
class Source:
    """A template's text; the time of `strftime_now`, which is undefined without it; its place for messages."""

    text: str
    now: datetime | None = None
    where: str | None = field(default=None, compare=False)


@dataclass
class _Running:
    """A template process. `alive`: the end of a pipe that ends it; `known`: templates, with number and lines."""

    process: "subprocess.Popen[bytes]"
    alive: IO[bytes]
    known: dict[Source, tuple[int, str]]

    def __post_init__(self) -> None:
        streams = self.process.stdin, self.process.stdout, self.process.stderr
        self.requests, self.replies, self.errors = (stream.fileno() for stream in streams if stream is not None)

    def forget(self) -> None:
        """Closes what this process has of it."""
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr, self.alive):
            if stream is not None:
                stream.close()


class TemplateProcess:
    """A template process with limits. It is started, and after an end started again, by a request."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._rendered: Counter[Source] = Counter()
        _clients.add(self)
        Finalize(None, _end_at_exit, (weakref.ref(self),), exitpriority=0)  # workers too come past it

    @property
    def pid(self) -> int | None:
        """The id of the process; None if there is none yet, or none any more."""
        return None if self._running is None else self._running.process.pid

    def compile(self, source: Source) -> Reply:
        """`DONE` or `INVALID`."""
        with self._lock:
            return self._compile(source)

    def variables(self, source: Source) -> list[str]:
        """The names that a template reads and does not set itself."""
        with self._lock:
            self._compile(source)
            (reply,) = self._exchange(source, wire.VARIABLES, None)
            return reply.text.split()

    def render(self, source: Source, renderings: Sequence[tuple[str, Any]]) -> list[Reply]:
        """A reply for each rendering: `PLAIN`, `TRACED` or `MARKED`, and the values of the template.

        The template must compile. Raises TemplateLimitError, and SpanloomError if the process cannot be started.
        """
        with self._lock:
            self._compile(source)
            replies = self._exchange(source, wire.RENDER, renderings, count=len(renderings))
            self._rendered[source] += len(renderings)
            return replies * len(renderings) if replies[0].kind == wire.UNREAD else replies

    def call(self, module: str, function: str, *arguments: Any) -> str:
        """The text that a function of a module returns, run within the limits. Raises LimitedCallError at a limit."""
        source = Source(text=f"{module}.{function}")
        with self._lock:
            self._running = self._running or self._start()
            try:
                (reply,) = self._exchange(source, wire.CALL, (module, function, arguments), number=0)
            except TemplateLimitError as stopped:
                raise LimitedCallError(stopped.what.partition(": ")[2]) from None
            return reply.text

    def close(self) -> None:
        """Ends the process. The next request starts another one."""
        with self._lock:
            self._end()

    def _compile(self, source: Source) -> Reply:
        running = self._running = self._running or self._start()
        if source in running.known:
            return Reply(kind=wire.DONE, text="")
        if len(running.known) == _MAX_KNOWN:
            running.known.clear()
        number = len(running.known)
        (reply,) = self._exchange(source, wire.COMPILE, (source.text, source.now), number=number)
        if reply.kind == wire.DONE:
            running.known[source] = number, reply.text
        return reply

    def _exchange(
        self, source: Source, verb: str, value: Any, *, number: int | None = None, count: int = 1
    ) -> list[Reply]:
        running = self._running
        assert running is not None
        request = wire.request_bytes(verb, running.known[source][0] if number is None else number, value)
        try:
            # The process ends without reading on where a request takes more memory than it may have.
            with suppress(BrokenPipeError):
                wire.write_all(running.requests, request)
            if not _readable(running.replies, self.limits.seconds):
                self._stop(source, verb, f"it runs for more than {self.limits.seconds:g} seconds", delayed=True)
            replies = wire.read_replies(running.replies, count, self.limits.output)
        except GoneError:
            self._stop(source, verb, "")
        except BaseException:  # Ctrl-C: a reply that nobody read would be that of the next request
            self._end()
            raise
        for reply in replies:
            if reply.kind == wire.NO_MEMORY:
                what = f"it takes more than {self.limits.memory >> 20:,} MiB of memory"
                self._stop(source, verb, what, line=reply.line)
            if reply.kind == wire.TOO_LONG:
                self._stop(source, verb, f"it writes more than {self.limits.output >> 20:,} MiB of text")
        return replies

    def _stop(self, source: Source, verb: str, what: str, *, line: int = 0, delayed: bool = False) -> NoReturn:
        """Ends the process and raises TemplateLimitError. `what`: why; without it, how the process ended."""
        running = self._running
        assert running is not None
        if delayed:
            running.process.send_signal(signal.SIGUSR1)
        errors = _rest(running.errors)
        code = self._end()
        if not what:
            what = f"its process ended by {_named(code)}"
            delayed = code == -signal.SIGKILL  # the system may have been short of memory
        if not line and (frame := _FRAME.search(errors)) and source in running.known:
            line = wire.template_line(running.known[source][1], int(frame[1]))
        place = source.where or "the chat template"
        if verb == wire.COMPILE:
            place += ", while it is compiled"
        kind = TemplateDelayError if delayed and self._rendered[source] else TemplateLimitError
        raise kind(
            f"the chat template was stopped: {what}",
            where=f"{place}, line {line}" if line else place,
            remedy=_remedy(delayed=delayed, before=self._rendered[source]),
        )

    def _start(self) -> _Running:
        """Raises SpanloomError."""
        alive, ours = os.pipe()
        limits = (alive, self.limits.memory, self.limits.output, ",".join(self.limits.modules))
        places = [str(place or Path.cwd()) for place in sys.path]
        # It inherits the mask: Ctrl-C, which goes to the whole process group, is this process's.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process = subprocess.Popen(
                [sys.executable or "python3", "-I", "-W", "ignore", "-c", _CODE, *map(str, limits), *places],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=(alive,),
                env={name: value for name, value in dict(os.environ).items() if name in _ENVIRONMENT},
            )
        except OSError as fault:
            os.close(ours)
            raise _unstarted(str(fault)) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(alive)
        running = self._running = _Running(process, os.fdopen(ours, "wb", 0), {})
        try:
            started = _readable(running.replies, _START_SECONDS)
            if started:
                wire.read_replies(running.replies, 1, self.limits.output)
        except GoneError:
            started = False
        except BaseException:
            self._end()
            raise
        if not started:
            errors = _rest(running.errors).strip().splitlines()
            self._end()
            raise _unstarted(errors[-1] if errors else "it gives no answer")
        return running

    def _end(self) -> int:
        """The exit code of the process, negative for a signal."""
        running, self._running = self._running, None
        if running is None:
            return 0
        ended = running.process.poll()
        running.process.kill()
        running.forget()
        return running.process.wait() if ended is None else ended

    def _forked(self) -> None:
        """In a fork: the process is the parent's."""
        running, self._running = self._running, None
        self._lock = threading.Lock()
        if running is not None:
            running.process.returncode = 0
            running.forget()


_clients: "weakref.WeakSet[TemplateProcess]" = weakref.WeakSet()


def _forget_all() -> None:
    for client in list(_clients):
        client._forked()


os.register_at_fork(after_in_child=_forget_all)


def _end_at_exit(client: "weakref.ref[TemplateProcess]") -> None:
    if (there := client()) is not None:
        there._end()  # without the lock: a thread may be waiting for an endless template


@cache
def shared_process() -> TemplateProcess:
    """The template process of this process. Raises SpanloomError for an invalid `SPANLOOM_TEMPLATE_SECONDS`."""
    text = os.environ.get(SECONDS_VARIABLE)
    try:
        seconds = wire.MAX_SECONDS if text is None else float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 1e6:
        raise SpanloomError(
            f"{SECONDS_VARIABLE} is no number of seconds: {text!r}", remedy="give a number above 0, such as 20"
        )
    return TemplateProcess(Limits(seconds=seconds))


def _readable(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read within some seconds.

    They are counted, not read from a clock: this process may be stopped meanwhile, as by Ctrl-Z.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    turns = ceil(seconds)
    return any(poll.poll(1000 * seconds / turns) for _ in range(turns))


def _rest(descriptor: int) -> str:
    """What the process has written to stderr, as it writes it."""
    body, wait = b"", _STEP_SECONDS
    while _readable(descriptor, wait) and (part := os.read(descriptor, _MOST_READ)) and len(body) < _MOST_READ:
        body, wait = body + part, _STEP_SECONDS / 10
    return body.decode(errors="replace")


def _named(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"


def _remedy(*, delayed: bool, before: int) -> str:
    if not delayed:
        return "fix the template, or leave such conversations out"
    if before:
        return f"it had rendered {before:,} times: try again with less load, or raise {SECONDS_VARIABLE}"
    return f"fix the template; on a machine under load, raise {SECONDS_VARIABLE}"


def _unstarted(why: str) -> SpanloomError:
    return SpanloomError(
        f"the process that renders chat templates does not start: {why}",
        where=sys.executable,
        remedy="check that this Python starts, and that Jinja2 is installed for it",
    )
