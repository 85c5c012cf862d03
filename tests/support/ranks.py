"""Several processes of torch.distributed at once, as torchrun starts them, but as forks of the warm process.

In: a module, its arguments, a number of ranks. Out: each rank's exit code and output. With `SPANLOOM_TEST_COLD=1` it is
torchrun itself.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping

from support import warm
from support.ports import free_ports


def run_ranks(
    module: str, *arguments: object, ranks: int, env: Mapping[str, str] = os.environ
) -> list["subprocess.CompletedProcess[str]"]:
    """`torchrun --standalone --nproc-per-node=RANKS -m MODULE ARGUMENTS`, to the end of all."""
    words = [str(argument) for argument in arguments]
    if warm.COLD:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [sys.executable, *launcher, "-m", module, *words]
        return [subprocess.run(command, capture_output=True, text=True, check=False, env=warm.with_tests(env))]
    shared = rendezvous(ranks)
    running = [
        warm.piped(module, *words, env={**env, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(ranks)
    ]
    while any(process.poll() is None for process in running):
        if any(process.poll() for process in running):  # the others would wait for it
            for process in running:
                process.kill()
        time.sleep(0.02)
    outputs = [process.communicate() for process in running]
    return [
        subprocess.CompletedProcess([module, *words], process.wait(), output, errors)
        for process, (output, errors) in zip(running, outputs, strict=True)
    ]


def rendezvous(ranks: int) -> dict[str, str]:
    """What torchrun tells all ranks of one machine."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_ports(1)[0]),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
    }
