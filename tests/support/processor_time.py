"""CPU time of this process and of the process that renders its chat templates, which `time.process_time` leaves out."""

import time

from spanloom.tokenizers.rendering.process import shared_process


def processor_time() -> float:
    """Seconds. The clock of another process is Linux's."""
    pid = shared_process().pid
    return time.process_time() + (0.0 if pid is None else time.clock_gettime(~pid << 3 | 2))
