"""A file that may not be read, a folder that may not be written: the error names the owner, the user and the remedy."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import REPOSITORY

SCRIPT = "import sys; from spanloom.cli import main; sys.exit(main())"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for folder in ("mine", "closed"):  # so that it can be removed
        if (tmp_path / folder).is_dir():
            (tmp_path / folder).chmod(0o755)


def spanloom(place: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    """The command as a user whom mode bits keep out: if this is root, without the capabilities to pass over them."""
    dropped = "-dac_override,-dac_read_search"
    as_user = ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}"] if os.geteuid() == 0 else []
    return subprocess.run(
        [*as_user, sys.executable, "-c", SCRIPT, *map(str, words)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        capture_output=True,
        text=True,
    )


def owner(path: Path) -> str:
    return path.owner()


@pytest.mark.parametrize("name", ["chat.jsonl", "chat.parquet"])
def test_a_file_that_may_not_be_read(place: Path, name: str) -> None:
    path = place / name
    path.write_bytes(b"{}\n")
    path.chmod(0)
    done = spanloom(place, "convert", name, "--dry-run", "--yes")
    assert done.returncode == 1
    assert f"{name} belongs to {owner(path)} (----------), and " in done.stderr
    assert "may not read it" in done.stderr
    assert f"chmod u+r {name}" in done.stderr


def test_a_folder_that_may_not_be_written(place: Path) -> None:
    shutil.copy(REPOSITORY / "docs/examples/chat.jsonl", place)
    (place / "mine").mkdir(mode=0o555)
    done = spanloom(place, "convert", "chat.jsonl", "--out", "mine/source", "--yes")
    assert done.returncode == 1
    assert f"mine belongs to {owner(place)} (dr-xr-xr-x), and " in done.stderr
    assert "may not write into it" in done.stderr
    source = REPOSITORY / "tests/frozen/synth_harmony"
    done = spanloom(place, "build", "--source", source, "--shards", 2, "--out", "mine/root", "--allow-unknown-sha")
    assert done.returncode == 1
    assert "may not write into it" in done.stderr


def test_a_folder_that_may_not_be_entered(place: Path) -> None:
    (place / "closed").mkdir()
    (place / "closed/chat.jsonl").write_bytes(b"{}\n")
    (place / "closed").chmod(0)
    done = spanloom(place, "convert", "closed/chat.jsonl", "--dry-run", "--yes")
    (place / "closed").chmod(0o755)
    assert done.returncode == 1
    assert "may not enter it" in done.stderr
