"""No folder for temporary files: one line that says so. The folders are read-only in a namespace of the test's own.

No home either: nothing is written there, and nothing complains.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

NAMESPACE = ("unshare", "--mount", "--map-root-user")
SCRIPT = """
set -e
mount --bind "$1" /mnt
for folder in /tmp /var/tmp; do mount --bind $folder $folder; mount -o remount,bind,ro $folder; done
cd "$2"
shift 2
exec "$@"
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode != 0,
    reason="needs Linux, and the right to make a namespace of mounts",
)
GZIPPED = "convert /mnt/chat.parquet.gz -y --out /mnt/source"


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A folder that is mounted at /mnt, writable, and one that is not, where the command runs."""
    out, here = tmp_path / "out", tmp_path / "here"
    out.mkdir()
    here.mkdir()
    (out / "chat.jsonl").write_text(json.dumps({"prompt": "a", "response": "b"}) + "\n")
    pq.write_table(pa.table({"prompt": ["a"], "response": ["b"]}), out / "chat.parquet")
    subprocess.run(["gzip", out / "chat.parquet"], check=True)
    return out, here


def spanloom(places: tuple[Path, Path], words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**{name: value for name, value in os.environ.items() if name not in ("TMP", "TEMP")}, **variables}
    return subprocess.run(
        [*NAMESPACE, "sh", "-c", SCRIPT, "sh", *places, sys.executable, "-m", "spanloom", *words.split()],
        env=environment, check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_what_needs_temporary_files_says_to_set_tmpdir(places: tuple[Path, Path]) -> None:
    done = spanloom(places, GZIPPED, TMPDIR="/nowhere", HOME="/")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-2:]
    assert last[0] == "error: no folder for temporary files can be written", done.stderr
    assert last[1].startswith("  remedy: set TMPDIR to a folder")
    assert "Traceback" not in done.stderr
    assert spanloom(places, GZIPPED, TMPDIR="/mnt", HOME="/").returncode == 0


def test_commands_that_need_none_work_without(places: tuple[Path, Path]) -> None:
    for words in (
        "convert /mnt/chat.jsonl -y --out /mnt/source",
        "build --source /mnt/source --out /mnt/root",
        "validate /mnt/root",
    ):
        done = spanloom(places, words, TMPDIR="/nowhere", HOME="/")
        assert done.returncode == 0, done.stderr


def test_a_caller_of_the_api_gets_the_same_line(places: tuple[Path, Path]) -> None:
    code = (
        "import spanloom\ntry:\n    spanloom.convert('/mnt/chat.parquet.gz', '/mnt/source')\n"
        "except spanloom.SpanloomError as error:\n    print(error)\nelse:\n    raise SystemExit('it was converted')\n"
    )
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", SCRIPT, "sh", *places, sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": "/nowhere"}, check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    what, remedy = done.stdout.splitlines()
    assert what == "no folder for temporary files can be written"
    assert remedy.startswith("  remedy: set TMPDIR to a folder")
