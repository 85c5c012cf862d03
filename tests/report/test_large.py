"""A million documents are reported in memory that does not follow their number, on a page that stays small."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import synthetic

MEBIBYTE = 1 << 20
FEW, MANY = 150_000, 1_000_000
"""Few fill a row group of the row table already: its buffers are there once, however many there are."""


def write_apart(root: Path, count: int) -> Path:
    """Writes the dataset in a process of its own: a child's peak begins at what its parent holds."""
    code = (
        "import pathlib, sys; from support import synthetic; n = int(sys.argv[2]);"
        " synthetic.write_dataset(pathlib.Path(sys.argv[1]), n, exercises=n)"
    )
    tests = Path(synthetic.__file__).parents[1]
    subprocess.run([sys.executable, "-c", code, str(root), str(count)], check=True, cwd=tests)
    return root


def peak_bytes(*arguments: object) -> int:
    """Peak resident memory of a `spanloom` command in a process of its own."""
    process = subprocess.Popen([sys.executable, "-m", "spanloom", *map(str, arguments)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.nightly
def test_a_million_documents_are_reported_in_bounded_memory_on_a_small_page(tmp_path: Path) -> None:
    """Many more documents, each with an exercise of its own: reported in nearly the same memory."""
    peaks: dict[str, list[int]] = {"validate": [], "stats": [], "export": []}
    for count in (FEW, MANY):
        root = write_apart(tmp_path / str(count), count)
        page, facts = tmp_path / f"{count}.html", tmp_path / f"{count}.json"
        peaks["validate"].append(peak_bytes("validate", root, "-q", "--html", page, "--report", facts))
        peaks["stats"].append(peak_bytes("stats", root, "--by", "language,exercise", "--json"))
        peaks["export"].append(peak_bytes("export", root, "--out", tmp_path / f"{count}_parquet", "-q"))
        said = json.loads(facts.read_bytes())
        assert said["clean"]
        assert said["statistics"]["total"]["sequences"] == count
        assert page.stat().st_size < 2_000_000
        assert facts.stat().st_size < 2_000_000
    growth = {name: (many - few) / MEBIBYTE for name, (few, many) in peaks.items()}
    # 64 MiB are 79 bytes for each document more; validation maps 60 of them (three indexes of 20 bytes a sequence).
    assert all(grown < 64 for grown in growth.values()), growth
