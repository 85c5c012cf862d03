"""docker/lock.py: the digests that bake reports, under the names that the committed pipeline uses."""

import json
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parents[2] / "docker/lock.py"
# As buildx 0.13 wrote it; later versions add the warnings.
METADATA = {
    "train": {"buildx.build.ref": "default/default/a", "containerimage.digest": "sha256:" + "2" * 64},
    "render-shard": {"buildx.build.ref": "default/default/b", "containerimage.digest": "sha256:" + "1" * 64},
    "buildx.build.warnings": [{"vertex": "sha256:0", "level": 1}],
}


def run(metadata: object, directory: Path) -> "subprocess.CompletedProcess[str]":
    path = directory / "bake.json"
    path.write_text(json.dumps(metadata))
    return subprocess.run(
        [sys.executable, LOCK, path, "ghcr.io/someone", "1.2.3"], capture_output=True, text=True, check=False
    )


def test_committed_names_stand_for_pushed_digests(tmp_path: Path) -> None:
    assert json.loads(run(METADATA, tmp_path).stdout) == {
        "ghcr.io/spanloom/spanloom-render-shard:1.2.3": f"ghcr.io/someone/spanloom-render-shard@sha256:{'1' * 64}",
        "ghcr.io/spanloom/spanloom-train:1.2.3": f"ghcr.io/someone/spanloom-train@sha256:{'2' * 64}",
    }


def test_a_build_that_pushed_nothing_gives_no_lock(tmp_path: Path) -> None:
    result = run({"train": {"buildx.build.ref": "default/default/a"}}, tmp_path)
    assert result.returncode != 0
    assert "was anything pushed?" in result.stderr
    assert result.stdout == ""
