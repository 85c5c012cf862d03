"""The template process: reads requests from stdin, compiles and renders, writes replies to stdout.

In: descriptor 0 with requests; as arguments, a descriptor that closes when the parent ends, and the limits of memory
and output. Out: descriptor 1 with replies. It opens no file after its start, starts no process, and does not hold what
the parent has open. The parent has the deadline: SIGUSR1 writes to stderr where the process is, also inside of C code.
"""

import faulthandler
import fcntl
import gc
import os
import resource
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import jinja2
from jinja2.exceptions import SecurityError

from spanloom.tokenizers.rendering import wire
from spanloom.tokenizers.rendering.sandbox import USED_LATER, Compiled, RaisedError, template_lines
from spanloom.tokenizers.rendering.wire import GoneError, Reply
from spanloom.tokenizers.traced_text import marks_of, plain_text

_KEPT_FREE = 1 << 20
"""Bytes for the reply that there is no memory left."""

_COLLECT_AFTER = 20_000
"""Objects made, less those freed, after which garbage is looked for, as in workers of a build."""

_templates: dict[int, Compiled] = {}


def main() -> None:
    """Serves until stdin closes, or memory is used up."""
    parent, memory, output = map(int, sys.argv[1:4])
    for name in (*USED_LATER, *filter(None, sys.argv[4].split(","))):  # no file can be opened then
        import_module(name)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    _end_with(parent)
    _limit(memory)
    wire.write_all(1, wire.replies_bytes([Reply(kind=wire.DONE, text="")], output))
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER)
    kept_free = [bytearray(_KEPT_FREE)]
    number = -1
    with suppress(GoneError):
        try:
            while True:
                try:
                    verb, number, value = wire.read_request(0)
                except (AttributeError, ImportError) as fault:
                    replies = [Reply(kind=wire.UNREAD, text=f"a value is of a class that is not there: {fault}")]
                else:
                    replies = _answers(verb, number, value)
                    del value
                wire.write_all(1, wire.replies_bytes(replies, output))
                del replies
        except MemoryError as fault:
            kept_free.clear()
            line = _line_of(number, fault)
            wire.write_all(1, wire.replies_bytes([Reply(kind=wire.NO_MEMORY, text="", line=line)], output))


def _end_with(parent: int) -> None:
    """Lets SIGIO, which the system sends when the parent's end of a pipe closes, end this process in the middle of a
    rendering. PR_SET_PDEATHSIG would end it with the thread that started it."""
    fcntl.fcntl(parent, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(parent, fcntl.F_SETFL, fcntl.fcntl(parent, fcntl.F_GETFL) | os.O_ASYNC)


def _limit(memory: int) -> None:
    """Limits memory; forbids core files, to write to files and to open any."""
    limits = {"RLIMIT_AS": memory, "RLIMIT_CORE": 0, "RLIMIT_FSIZE": 0, "RLIMIT_NOFILE": 0}
    for name, most in limits.items():
        with suppress(OSError, ValueError):  # macOS knows RLIMIT_AS by name only
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            lowest = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (lowest, lowest))


def _line_of(number: int, fault: BaseException) -> int:
    template = _templates.get(number)
    lines = list(template_lines(fault))
    return wire.template_line(template.lines, lines[-1]) if template is not None and lines else 0


def _answers(verb: str, number: int, value: Any) -> list[Reply]:
    if verb == wire.COMPILE:
        return [_compiled(number, *value)]
    if verb == wire.CALL:
        module, function, arguments = value
        return [Reply(kind=wire.DONE, text=getattr(import_module(module), function)(*arguments))]
    template = _templates[number]
    if verb == wire.VARIABLES:
        return [Reply(kind=wire.DONE, text=" ".join(template.variables()))]
    return [_rendered(template, how, values) for how, values in value]


def _rendered(template: Compiled, how: str, values: Any) -> Reply:
    try:
        text = template.render(values, how)
    except MemoryError:
        raise
    except SecurityError as fault:
        return Reply(kind=wire.FORBIDDEN, text=str(fault.message))
    except RaisedError as fault:
        return Reply(kind=wire.RAISED, text=str(fault.message))
    except Exception as fault:  # it computes with users' values: TypeError, KeyError, UndefinedError and others
        return Reply(kind=wire.FAILED, text=_reason_of(fault))
    return Reply(kind=wire.DONE, text=plain_text(text), marks=marks_of(text))


def _compiled(number: int, text: str, now: Any) -> Reply:
    """The reply has the table of lines, for a traceback that the parent reads."""
    _templates.pop(number, None)
    try:
        _templates[number] = Compiled(text, now)
    except jinja2.TemplateSyntaxError as fault:
        return Reply(kind=wire.INVALID, text=f"the template is not valid Jinja: {fault.message}, line {fault.lineno}")
    except (RecursionError, SyntaxError, ValueError) as fault:
        return Reply(kind=wire.INVALID, text=f"the template cannot be compiled: {_reason_of(fault)}")
    return Reply(kind=wire.DONE, text=_templates[number].lines)


def _reason_of(fault: BaseException) -> str:
    if isinstance(fault, RecursionError):
        return "it calls itself, or is nested, too deep"
    if isinstance(fault, OSError):
        return "it asks for a file"
    return str(fault) or type(fault).__name__
