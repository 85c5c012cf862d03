"""The `spanloom` command, and `python -m spanloom`: Ctrl-C ends it in a word, even while all is being imported."""

import gc
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

COLLECT_AFTER = 100_000
"""Objects made, less those freed, after which a command looks for garbage. Imports make many and leave next to none."""

REPEAT_AFTER = 0.01
"""Seconds after which an interrupt that Python ignored is raised again."""


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
    would be ignored too; the timer's thread signals the main thread once this has returned.
    """
    if not issubclass(ignored.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    # Sent to the main thread: a signal that another thread takes would not end a wait of it.
    timer = threading.Timer(REPEAT_AFTER, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main()
