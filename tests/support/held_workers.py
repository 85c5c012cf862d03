"""Scripts whose DataLoader workers are still importing at the moment that a test is about.

In: the code of a script, and which of its workers to hold. Out: the script, with `HOLD` before its own imports. A held
worker waits for the lock on the file `gate` in the current folder, and goes on importing as soon as it is released. So
the order of events is certain, however long a process takes to start.
"""

HELD = "a worker is held"
"""What a worker prints, once, when it begins to wait."""

HOLD = """
import atexit, fcntl, multiprocessing, os, signal
gate = open("gate", "a")
if multiprocessing.current_process().name == "MainProcess":
    # A process that a shell started in the background ignores SIGINT, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
elif multiprocessing.current_process().name not in {free}:
    os.write(1, b"{held}\\n")  # in one piece, whatever others write
    fcntl.flock(gate, fcntl.LOCK_SH)
"""

KEEP_HELD = "    fcntl.flock(gate, fcntl.LOCK_EX)\n"
"""In the main process, before its loader: the workers are held until it ends, or says `RELEASE_AT_EXIT`."""

RELEASE_AT_EXIT = "    atexit.register(fcntl.flock, gate, fcntl.LOCK_UN)\n"
"""In the main process, after the pass has begun: exit functions run last in, first out, so the workers go on with their
imports just before the pass is ended."""


def holding(code: str, free: tuple[str, ...] = ()) -> str:
    """The script `code`, whose workers are held but for those named `free`."""
    return HOLD.format(free=free, held=HELD) + code
