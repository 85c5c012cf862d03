"""The family of docs/examples/family.py does what families do."""

import importlib
import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from spanloom import families
from spanloom.building.options import RunOptions
from spanloom.building.steps import StepTask, make_requested, run_assemble
from spanloom.cli.app import app
from spanloom.dataset import manifest
from spanloom.errors import ConflictError
from spanloom.report.progress import Mode, Progress
from spanloom.steps.validate_alignment import validate_alignment
from spanloom.storage.scratch import scratch_for
from support import warm
from support.cases import REPOSITORY

ROWS, SHARDS = 5000, 2
REFUSED = 52
"""Rows n with n % 97 == 5 have no answer."""

KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import pairs
from pathlib import Path
from spanloom.building.options import RunOptions
from spanloom.building.parts.stored import PartWriter
commit = PartWriter.commit
def killed(self, *arguments, **options):
    done = commit(self, *arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
PartWriter.commit = killed
pairs.build(Path(sys.argv[2]), Path(sys.argv[3]), RunOptions(max_rejects="5%", allow_unknown_sha=True), shards=2)
"""


KNOWN = """

# A family of the package is in the list of families and in the manifest's schema, in each process.
from spanloom import families
from spanloom.dataset import manifest

schema = manifest.schema()
schema["properties"]["content"]["properties"]["family"]["enum"].append("pairs")
manifest.schema = lambda: schema
families.FAMILIES["pairs"] = lambda: sys.modules["pairs"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pairs")
    code = (REPOSITORY / "docs/examples/family.py").read_text("utf-8")
    (made / "pairs.py").write_text(code + KNOWN)
    lines = (
        {"id": f"p{n}", "question": f"What is {n}+{n}?", "answer": "" if n % 97 == 5 else f" {2 * n} é"}
        for n in range(ROWS)
    )
    (made / "pairs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return made


@pytest.fixture
def pairs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setattr(manifest, "schema", manifest.schema)  # put back behind the test, as the other one
    monkeypatch.setitem(families.FAMILIES, "pairs", families.FAMILIES["synth_kd"])
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module("pairs")
    del sys.modules["pairs"]


def options(**others: Any) -> RunOptions:
    return RunOptions(**{"max_rejects": "5%", "reader": "independent", "allow_unknown_sha": True, **others})


def state(root: Path) -> tuple[Any, dict[str, bytes]]:
    """The manifest's `content`, and the files below the root."""
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in root.glob("*/*") if path.is_file()}
    return manifest.read(root).content.as_dict(), files


def test_it_builds_validates_and_serves_the_commands(pairs: ModuleType, folder: Path, tmp_path: Path) -> None:
    source, root = folder / "pairs.jsonl", tmp_path / "root"
    result = pairs.build(source, root, options(), shards=SHARDS)
    assert result.report.clean, result.report.findings
    totals = result.manifest.content.totals
    assert totals.rejected == {"no_answer": REFUSED}
    assert totals.sequences == ROWS - REFUSED
    rejected = [json.loads(line) for path in root.glob("rejects/*") for line in path.read_text().splitlines()]
    assert sorted(line["row"] for line in rejected) == list(range(5, ROWS, 97))

    def ran(*arguments: Any) -> str:
        done = CliRunner().invoke(app, [str(each) for each in arguments])
        assert done.exit_code == 0, done.output
        return done.output

    assert "clean" in ran("validate", root, "--source", source, "--reader", "independent")
    assert re.search(r"question – masked.*\n· What is \d+\+\d+\?", ran("inspect", root, "--count", 1))
    assert f"{ROWS - REFUSED:,} documents" in ran("export", root, "--out", tmp_path / "export")
    assert pairs.build(source, root, options(), shards=SHARDS).already_built
    with pytest.raises(ConflictError, match="other options"):
        pairs.build(source, root, options(), shards=SHARDS, valid_fraction=0.5)


def test_validation_finds_a_token_that_is_changed(pairs: ModuleType, folder: Path, tmp_path: Path) -> None:
    source, root = folder / "pairs.jsonl", tmp_path / "root"
    pairs.build(source, root, options())
    path = root / "train/shard_00_tokens.bin"
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    report = validate_alignment(root=root, family=pairs, source=source, reader="independent")  # type: ignore[arg-type]
    assert "source" in {finding.check for finding in report.findings}


def test_a_killed_build_goes_on(pairs: ModuleType, folder: Path, tmp_path: Path) -> None:
    source, root, whole = folder / "pairs.jsonl", tmp_path / "root", tmp_path / "whole"
    killed = warm.run_code(KILLED, folder, source, root)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (root / "manifest.json").exists()
    assert len(list((root / ".work").rglob("part_*.json"))) >= 1
    assert pairs.build(source, root, options(), shards=SHARDS).report.clean
    pairs.build(source, whole, options(), shards=SHARDS)
    assert state(root) == state(whole)
    assert not (root / ".work").exists()


def test_workers_and_tasks_for_each_shard_write_the_same_bytes(pairs: ModuleType, folder: Path, tmp_path: Path) -> None:
    source, root, whole = folder / "pairs.jsonl", tmp_path / "root", tmp_path / "whole"
    pairs.build(source, whole, options(workers=2), shards=SHARDS)
    request = pairs.request_of(source, SHARDS, 0.1)
    handed = [
        (str(tmp_path / f"{shard}/rendered.json"), str(tmp_path / f"{shard}/inv.json")) for shard in range(SHARDS)
    ]
    for shard, (rendered, inventory) in enumerate(handed):
        (tmp_path / str(shard)).mkdir()
        task = StepTask(max_rejects="5%", shard=shard, rendered=rendered, inventory=inventory)
        with scratch_for("pairs", [shard], tmp_path / "scratch") as staging:
            make_requested(staging, request, str(root), task, Progress(mode=Mode.SILENT))
    run_assemble(
        rendered=[rendered for rendered, _ in handed],
        inventories=[inventory for _, inventory in handed],
        root=str(root),
        allow_unknown_sha=True,
    )
    report = validate_alignment(root=root, family=pairs, source=source, reader="independent")  # type: ignore[arg-type]
    assert report.clean, report.findings
    assert state(root) == state(whole)
