"""Files of settings whose reading may never end.

In: a path that a user or the environment names. Out: whether it is a device, or a FIFO that waits for a writer.
"""

from pathlib import Path


def never_ends(path: Path) -> bool:
    """Whether reading may never end. `<(command)` of a shell is a FIFO too, below /dev or /proc, and has a writer."""
    shell_made = path.is_relative_to("/dev") or path.is_relative_to("/proc")
    return path.is_char_device() or (path.is_fifo() and not shell_made)
