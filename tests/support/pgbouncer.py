"""PgBouncer in transaction mode before a PostgreSQL server, on a socket of its own.

In: Debian's `pgbouncer`, without which the test is skipped; a running server. Out: URLs through the pooler. As root it
is started as PostgreSQL's user, as it refuses to run as root.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.ports import free_ports
from support.postgres import PostgresServer, _as_unprivileged

PROGRAM = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")


@contextmanager
def pgbouncer(server: PostgresServer) -> Iterator[str]:
    """The host and port, `host=…&port=…`, of a pooler with one connection to each database."""
    if PROGRAM is None:
        pytest.skip("missing: PgBouncer; remedy: install it (Debian: pgbouncer)")
    folder, port = Path(server.folder) / "pooler", free_ports(1)[0]
    folder.mkdir()
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={server.folder}\n[pgbouncer]\nlisten_addr =\nlisten_port = {port}\n"
        f"unix_socket_dir = {folder}\nauth_type = trust\nauth_file = {folder}/users\npool_mode = transaction\n"
        f"default_pool_size = 2\nlogfile = {folder}/log\npidfile = {folder}/pid\n"
    )
    if not os.getuid():
        user = _as_unprivileged()
        for path in (folder, *folder.iterdir()):
            os.chown(path, int(str(user["user"])), int(str(user["group"])))
    with subprocess.Popen(
        [PROGRAM, "-q", folder / "pgbouncer.ini"], stderr=subprocess.DEVNULL, **_as_unprivileged()
    ) as process:
        try:
            until = time.monotonic() + 20
            while not (folder / f".s.PGSQL.{port}").exists():
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until
                time.sleep(0.05)
            yield f"host={folder}&port={port}"
        finally:
            process.terminate()
