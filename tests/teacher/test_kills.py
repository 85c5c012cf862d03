"""A run that is killed goes on by the same command, and the files are those of a run that was not."""

import os
import random
import shutil
import time
from pathlib import Path

from support import warm
from support.nightly import drawn
from support.teachers import write_scored_dataset

KILLS = drawn(30, 1)


def test_killed_runs_end_in_equal_bytes(tmp_path: Path) -> None:
    root, model = write_scored_dataset(tmp_path)
    whole = warm.run("support.score_in_parts", str(root), str(model), str(tmp_path / "whole"), env=os.environ)
    assert whole.returncode == 0, whole.stderr
    wanted = {path.relative_to(tmp_path / "whole"): path for path in (tmp_path / "whole").rglob("*") if path.is_file()}
    chosen = random.Random(7)
    resumed = 0
    for number in range(KILLS):
        out = tmp_path / f"out{number}"
        for _ in range(2):  # killed twice
            process = warm.piped("support.score_in_parts", str(root), str(model), str(out), env=os.environ)
            parts = chosen.randint(1, 8)
            while process.poll() is None and len(list(out.glob(".parts/*.npz"))) < parts:
                time.sleep(0.001)
            time.sleep(chosen.uniform(0, 0.01))
            process.kill()
            process.communicate()
        resumed += (out / ".parts").is_dir()
        done = warm.run("support.score_in_parts", str(root), str(model), str(out), env=os.environ)
        assert done.returncode == 0, done.stderr
        found = {path.relative_to(out): path for path in out.rglob("*") if path.is_file()}
        assert found.keys() == wanted.keys()
        for name, path in wanted.items():
            if name.name != "teacher.json":  # its environment has the time
                assert found[name].read_bytes() == path.read_bytes(), name
        shutil.rmtree(out)
    assert resumed, "no run was killed between two parts"
