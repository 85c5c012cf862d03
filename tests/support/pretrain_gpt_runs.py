"""Runs of Megatron-LM's own script on a CPU, whose ranks are forks of one process that has imported it.

In: a version, a number of ranks, flags. Out: the exit code and what the ranks wrote. Importing torch and Megatron takes
each rank, and torchrun too, 5 to 8 s of CPU time. With `SPANLOOM_TEST_COLD=1` it is torchrun.

`python -m support.pretrain_gpt_runs` is that process: a line of JSON on stdin is a run (`ranks`, `flags`,
`environment`, and `output`, a folder for what each rank writes), a line on stdout its exit code.
"""

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import Any, Never

from support import warm
from support.cases import REPOSITORY
from support.megatron_lm import MegatronLM
from support.ranks import rendezvous

Done = subprocess.CompletedProcess[str]


def run_pretrain_gpt(version: MegatronLM, ranks: int, *flags: str, environment: dict[str, str]) -> Done:
    """`torchrun --standalone --nproc-per-node=RANKS pretrain_gpt_rank.py FLAGS`, to the end of all ranks."""
    if warm.COLD:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        return subprocess.run(
            [str(version.python), *launcher, str(REPOSITORY / "tests/support/pretrain_gpt_rank.py"), *flags],
            capture_output=True,
            text=True,
            check=False,
            cwd=REPOSITORY,
            env={**version.environment, **environment},
        )
    server = _server(version)
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        order = {
            "ranks": ranks,
            "flags": flags,
            "environment": {**environment, **rendezvous(ranks)},
            "output": folder,
        }
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        written = ["".join(Path(folder, f"{rank}.{name}").read_text() for rank in range(ranks)) for name in STREAMS]
    return Done(list(flags), code, *written)


STREAMS = ("stdout", "stderr")


@cache
def _server(version: MegatronLM) -> "subprocess.Popen[str]":
    """It ends with this process, which closes its stdin."""
    return subprocess.Popen(
        [str(version.python), "-m", "support.pretrain_gpt_runs"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=REPOSITORY,
        env=version.environment,
    )


def serve() -> None:
    # A rank writes to files, and what an import prints is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from spanloom.training.megatron_lm import load_script
    from support import pretrain_gpt_rank

    load_script(None)
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        running = {_forked(pretrain_gpt_rank.main, order, rank) for rank in range(order["ranks"])}
        print(_end_of(running), file=answers, flush=True)


def _end_of(running: set[int]) -> int:
    """The exit code of the first rank that fails, which ends the others: they would wait for it."""
    code = 0
    while running:
        process, status = os.wait()
        running.discard(process)
        ended = os.waitstatus_to_exitcode(status)
        if ended and not code:
            code = ended
            for other in running:
                os.kill(other, signal.SIGKILL)
    return code


def _forked(main: Any, order: dict[str, Any], rank: int) -> int:
    process = os.fork()
    return process or _become(main, order, rank)


def _become(main: Any, order: dict[str, Any], rank: int) -> Never:
    code = 1
    try:
        for descriptor, name in enumerate(STREAMS, start=1):
            file = os.open(Path(order["output"], f"{rank}.{name}"), os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(file, descriptor)
        os.environ.update(order["environment"], RANK=str(rank), LOCAL_RANK=str(rank))
        sys.argv = ["pretrain_gpt_rank.py", *order["flags"]]
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
