"""A PostgreSQL server of our own, on a socket in a temporary folder, for as long as the tests run.

In: Debian's `postgresql` package, without which the test is skipped. Out: URLs of fresh databases. The server refuses
to run as root, so root starts it as the user that the package made.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from support.requirements import POSTGRES, absent

_USER = "postgres"


def _program(name: str) -> Path:
    programs = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    if programs:
        return programs[-1]
    if (on_path := shutil.which(name)) is None:
        absent(POSTGRES, f"PostgreSQL is not installed here: there is no {name}")
    return Path(on_path)


@dataclass
class PostgresServer:
    """A running server. `stop` and `start` are for tests of a database that goes away."""

    folder: Path
    numbers: Iterator[int] = field(default_factory=count)

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off -c max_connections=120"
        log = self.folder / "log"
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(log), "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", "immediate", "stop")

    def create(self) -> None:
        self._run("initdb", "-D", str(self.folder / "data"), "-U", _USER, "-A", "trust", "--locale=C.UTF-8")

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"d{next(self.numbers)}"
        self._run("psql", "-h", str(self.folder), "-U", _USER, "-q", "-c", f"CREATE DATABASE {name}", "postgres")
        return f"postgresql://{_USER}@/{name}?host={self.folder}"

    def _run(self, program: str, *arguments: str) -> None:
        process = subprocess.run(
            [_program(program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd=self.folder,
            **_as_unprivileged(),
        )
        if process.returncode:
            raise RuntimeError(f"{program} failed: {process.stdout}")


def _as_unprivileged() -> dict[str, object]:
    if os.getuid():
        return {}
    try:
        user = pwd.getpwnam(_USER)
    except KeyError:
        absent(POSTGRES, f"there is no user {_USER}, and PostgreSQL does not run as root")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server that ends with the block."""
    # Sockets have short paths.
    with tempfile.TemporaryDirectory(prefix="spanloom-pg-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        if not os.getuid():
            _program("initdb")
            user = _as_unprivileged()
            os.chown(folder, int(str(user["user"])), int(str(user["group"])))
        server = PostgresServer(Path(folder))
        server.create()
        server.start()
        try:
            yield server
        finally:
            with suppress(RuntimeError):  # a test may have stopped it
                server.stop()
