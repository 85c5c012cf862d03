"""One large object up and down over a slow line, in one stream and in eight: SeaweedFS behind a proxy.

    PYTHONPATH=src:tests python -m tools.bench.transfers
    PYTHONPATH=src:tests python -m tools.bench.transfers --megabytes 256 --rate 20 --latency 0.05

In: the bytes of the object, what each connection carries a second in each direction, and how long each answer waits for
its first byte. Out: seconds and MB/s of each way, and the ratio to one stream. Each number of streams has a process of
its own.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from support.stores.seaweedfs import seaweedfs

CREDENTIALS = {"aws_access_key_id": "bench", "aws_secret_access_key": "bench"}
BUCKET = "bench"
BLOCK = 64 << 10


class SlowLine:
    """A proxy before a store. `rate`: bytes a second of a connection, each direction; `latency`: seconds that the
    first bytes wait after a change of direction."""

    def __init__(self, address: str, *, rate: float, latency: float) -> None:
        self._port = int(address.rpartition(":")[2])
        self._rate, self._latency = rate, latency
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self.address = ""

        async def serve() -> None:
            server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
            self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            started.set()

        self._loop.create_task(serve())
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        started.wait()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", self._port)
        last: list[object] = [None]
        await asyncio.gather(
            self._carry(reader, to, last, self), self._carry(there, writer, last, to), return_exceptions=True
        )

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, last: list[object], direction: object
    ) -> None:
        due = 0.0
        while block := await source.read(BLOCK):
            if last[0] is not direction:
                last[0] = direction
                await asyncio.sleep(self._latency)
            now = time.monotonic()
            due = max(due, now) + len(block) / self._rate
            await asyncio.sleep(due - now)
            sink.write(block)
            await sink.drain()
        sink.close()


def measure(streams: int, megabytes: int) -> dict[str, float]:
    """In a process of its own: seconds up and down with so many streams. The store is the one of the environment."""
    from spanloom.storage.stores import objects

    objects.PIECES = streams  # before the modules that take it from there
    from spanloom.storage.publishing import publish_file
    from spanloom.storage.staging import stage_file
    from spanloom.storage.uri import parse_uri

    with tempfile.TemporaryDirectory() as folder:
        path, uri = Path(folder) / "object", parse_uri(f"s3://{BUCKET}/{streams}")
        path.write_bytes(os.urandom(megabytes << 20))
        began = time.perf_counter()
        publish_file(path, uri)
        up = time.perf_counter() - began
        began = time.perf_counter()
        stage_file(uri, Path(folder) / "copy")
        down = time.perf_counter() - began
    return {"up": up, "down": down}


def main() -> None:
    parser = argparse.ArgumentParser(description="One large object in one stream and in eight.")
    parser.add_argument("--megabytes", type=int, default=128, help="MiB of the object")
    parser.add_argument("--rate", type=float, default=8, help="MB/s of a connection")
    parser.add_argument("--latency", type=float, default=0.03, help="seconds before the first byte of an answer")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.megabytes)))
        return
    import boto3

    with tempfile.TemporaryDirectory() as folder, seaweedfs(Path(folder), CREDENTIALS) as address:
        line = SlowLine(address, rate=options.rate * 1e6, latency=options.latency)
        names = {name.upper(): value for name, value in CREDENTIALS.items()}
        boto3.client("s3", endpoint_url=address, region_name="us-east-1", **CREDENTIALS).create_bucket(Bucket=BUCKET)
        environment = {**os.environ, **names, "AWS_ENDPOINT_URL": line.address, "AWS_DEFAULT_REGION": "us-east-1"}
        one: dict[str, float] = {}
        for streams in options.streams:
            command = [sys.executable, "-m", "tools.bench.transfers", "--measure", str(streams)]
            command += ["--megabytes", str(options.megabytes)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            for way, seconds in json.loads(done.stdout).items():
                rate = options.megabytes * (1 << 20) / 1e6 / seconds
                if streams == 1:
                    one[way] = seconds
                ratio = f", {one[way] / seconds:.1f} × one stream" if streams > 1 and way in one else ""
                print(f"{streams} at once, {way}: {seconds:.1f} s, {rate:.1f} MB/s{ratio}")


if __name__ == "__main__":
    main()
