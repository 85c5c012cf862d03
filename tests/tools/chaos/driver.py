"""A `spanloom` command run under supervision: where it changes files, and what becomes of it when one change fails.

In: arguments, a folder, a `Fault`. Out: a `Run`.
"""

import json
import os
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support import warm

REPOSITORY = Path(__file__).parents[3]

SECONDS_TO_START = 300
"""For the server to import everything, on a busy machine."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`what` happens at one change: `kill` ends the process group before it, an errno's name makes it fail.

    The change is named by its text (`at`), which is the same from run to run, or by its `number` in this run, from 1.
    `lasting`: whatever takes space fails from there on, as on a full disk.
    """

    what: str
    at: str | None = None
    number: int | None = None
    lasting: bool = False

    def __str__(self) -> str:
        return f"{self.what}{' from' if self.lasting else ''} at {self.at or f'change {self.number}'}"


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a command ended: exit code (negative: the signal), output, the changes that it made or tried, and at which
    of them the fault came. `in_time` is false when it had to be killed because it hung."""

    code: int
    output: str
    changes: tuple[str, ...]
    fired: tuple[str, ...]
    in_time: bool
    seconds: float


class Driver:
    """Runs commands in `folder`, which is the current folder of each. Changes below it are watched.

    The scratch folder of the commands ($TMPDIR) is `folder/tmp`, so what they leave there is seen as well.
    """

    def __init__(self, folder: Path, *, log: Path, asset: Path | None = None) -> None:
        self.folder, self._log = folder.resolve(), log
        asset = asset or Path(
            os.environ.get("O200K_HARMONY_VOCAB_PATH", REPOSITORY / "data/tokenizer/o200k_base.tiktoken")
        )
        paths = [str(REPOSITORY / "src"), str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH", "")]
        fresh = {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            # Neither may have threads before it forks.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        environment = {
            **os.environ,
            "O200K_HARMONY_VOCAB_PATH": str(asset.resolve()),
            "SPANLOOM_GIT_SHA": "0" * 40,
            "SPANLOOM_STORAGE_DEADLINE": "5",
            "TMPDIR": str(self.folder / "tmp"),
        }
        with tempfile.TemporaryDirectory() as address, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{address}/socket")
            listener.listen()
            listener.settimeout(SECONDS_TO_START)
            self._server = warm.start(
                "tools.chaos.server",
                f"{address}/socket",
                env={**environment, **({} if warm.is_running() else fresh)},
                streams=(2, 2),
                cold=not warm.is_running(),
            )
            self._connection = listener.accept()[0]
        self._connection.setblocking(True)
        self._lines = self._connection.makefile("rw")
        self._hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._lines.close()
        self._connection.close()
        self._server.wait()

    def run(
        self,
        arguments: Sequence[str],
        *,
        watch: bool = True,
        fault: Fault | None = None,
        environment: dict[str, str] | None = None,
        seconds: float = 60,
        own_process: bool = False,
    ) -> Run:
        """Runs one command to its end. `own_process`: in a fresh interpreter, not in a fork that has all imported."""
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        asked = {
            "arguments": [str(argument) for argument in arguments],
            "folder": str(self.folder),
            "log": str(self._log),
            "environment": environment or {},
            "watched": str(self.folder) if watch or fault else None,
            "fault": fault and asdict(fault),
            "seconds": seconds,
            "own_process": own_process,
        }
        print(json.dumps(asked), file=self._lines, flush=True)
        said = self._hear()
        return Run(
            code=said["code"],
            output=self._log.read_text(errors="backslashreplace"),
            changes=tuple(said["changes"]),
            fired=tuple(said["fired"]),
            in_time=said["in_time"],
            seconds=said["seconds"],
        )

    def _hear(self) -> Any:
        line = self._lines.readline()
        if not line:
            raise RuntimeError(f"the server ended with exit code {self._server.wait()}; its stderr says why")
        return json.loads(line)
