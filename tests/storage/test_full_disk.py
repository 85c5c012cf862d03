"""A disk that is really full: a tmpfs of some kilobytes, mounted in a namespace of the test's own.

What `tools/chaos` injects at each call, here the kernel says. Nothing that looks finished is left, the message says
what to do, and the same command finishes once there is room.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.nightly import nightly

NAMESPACE = ("unshare", "--mount", "--map-root-user")
SCRIPT = """
set -e
mount -t tmpfs -o size="$1" tmpfs "$2"
folder=$2
shift 2
code=0
"$@" 2>"$folder/../stderr" >/dev/null || code=$?
(cd "$folder"; find . -type f >../left)
mount -o remount,size=200m "$folder"
"$@" >/dev/null
(cd "$folder"; find . -name manifest.json >../finished)
exit $code
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode != 0,
    reason="needs Linux, and the right to make a namespace of mounts",
)


@pytest.mark.parametrize("kilobytes", [nightly(16), 100, nightly(250)])
def test_a_conversion_names_its_output_and_finishes_when_there_is_room(tmp_path: Path, kilobytes: int) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    chat = tmp_path / "chat.jsonl"
    with chat.open("w") as stream:
        for number in range(1000):  # random hexadecimal digits: packed, they take half a kilobyte each
            stream.write(json.dumps({"prompt": f"q{number}", "response": os.urandom(500).hex()}) + "\n")
    out = folder / "source"
    command = [sys.executable, "-m", "spanloom", "convert", chat, "--out", out, "-y", "--rows-per-shard", "100"]
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", SCRIPT, "sh", f"{kilobytes}k", folder, *command],
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    message = (tmp_path / "stderr").read_text()
    assert done.returncode == 1, (done.stderr, message)
    assert "No space left on device" in message
    assert "Traceback" not in message
    assert str(out) in message
    assert "free some space and run the same command again" in message
    assert "manifest.json" not in (tmp_path / "left").read_text()
    assert (tmp_path / "finished").read_text() == "./source/manifest.json\n"
