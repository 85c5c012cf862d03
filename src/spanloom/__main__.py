"""The `spanloom` command, and `python -m spanloom`: Ctrl-C ends it in a word, even while all is being imported."""

import gc
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

COLLECT_AFTER = 100_000
"""Objects made, less those freed, after which a command looks for garbage. Imports make many and leave next to none."""

LOOK_AGAIN = 0.01
"""Seconds."""


def main() -> None:
    """Runs the command; see `spanloom.cli`."""
    gc.set_threshold(COLLECT_AFTER)
    sys.unraisablehook = _repeat_interrupt
    try:
        from spanloom import cli, no_pandas

        no_pandas.leave_out_pandas()

        cli.main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    finally:
        # The interpreter looks for garbage once more when it ends; nothing that is alive then needs to be looked at.
        gc.freeze()
        # Dataclasses are made by running text. CPython notes a KeyboardInterrupt that leaves such text, and under
        # `python -m` dies of SIGINT at its end, although it was handled. Running other text withdraws the note.
        exec("")


def _repeat_interrupt(ignored: "UnraisableHookArgs", /) -> None:
    """Raises a KeyboardInterrupt again that came where Python ignores exceptions, so that Ctrl-C is never lost.

    Such places are `__del__` and callbacks of weak references, which imports use for their locks. Raised from here it
    would be ignored too, so a thread signals the main thread once that has left this function.
    """
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        threading.Thread(target=_interrupt_main, daemon=True).start()
    else:
        sys.__unraisablehook__(ignored)


def _interrupt_main() -> None:
    main = threading.main_thread().ident
    assert main is not None, "it runs"
    while _repeat_interrupt.__code__ in _codes(sys._current_frames()[main]):
        time.sleep(LOOK_AGAIN)
    signal.pthread_kill(main, signal.SIGINT)  # a signal that another thread takes would not end a wait of it


def _codes(frame: FrameType | None) -> Iterator[CodeType]:
    """What a thread is running, from the inside out."""
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


if __name__ == "__main__":
    main()
