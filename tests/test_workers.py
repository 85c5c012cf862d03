"""A pool's failures say what to do."""

import subprocess
import sys
from pathlib import Path

import pytest

from support import sources

SCRIPT = """
from pathlib import Path
from spanloom.errors import SpanloomError
from spanloom.families.harmony.build import BuildOptions, build
{guard}
    try:
        options = BuildOptions(source=Path({source!r}), out=Path({out!r}), shards=1, valid_fraction=0.5, workers=2)
        result = build(options)
        print("clean", result.report.clean)
    except SpanloomError as error:
        print(error)
"""


@pytest.mark.parametrize(("guard", "clean"), [("if __name__ == '__main__':", True), ("if True:", False)])
def test_a_script_without_a_guard_gets_one_clear_line(tmp_path: Path, guard: str, clean: bool) -> None:
    source = sources.write_source(tmp_path / "source", [sources.rows(20)])
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(guard=guard, source=str(source), out=str(tmp_path / "out")))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    if clean:
        assert (done.stdout, done.returncode) == ("clean True\n", 0), done.stderr
        return
    assert done.stdout.splitlines() == [
        "each worker process would run the calling script again: the call stands outside of its main guard",
        '  remedy: put the call under `if __name__ == "__main__":`',
    ]
    assert done.stderr == ""
    assert not (tmp_path / "out/manifest.json").exists()
