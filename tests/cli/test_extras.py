"""A wheel without extras says which one a command needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY
from support.token_datasets import random_shards, write_dataset

FROZEN = REPOSITORY / "tests/frozen"

BARE = """
import sys
for package in ("torch", "megatron", "boto3", "chess", "sqlalchemy", "psycopg", "tokenizers", "transformers", "fastapi",
                "uvicorn", "prometheus_client", "mlcroissant"):
    sys.modules[package] = None
sys.argv = ["spanloom", *sys.argv[1:]]
from spanloom.cli import main
main()
"""
"""The command where none of the packages is installed that an extra brings."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What its manifest calls a dataset of reasoning traces."""
    root = write_dataset(tmp_path_factory.mktemp("traces") / "root", {"train": random_shards(0, [[9, 12]])})
    manifest = json.loads((root / "manifest.json").read_bytes())
    config = {
        "format": "tunix_sft", "protect_metadata": True, "control_tokens": "reject", "sort_steps": False,
        "system": None, "eod": {"text": "<eos>", "id": 2}, "valid_fraction": 0.2,
    }  # fmt: skip
    source = {"schema_version": "test", "manifest_sha256": "0" * 64, "dataset": "a", "shards": []}
    manifest["content"] |= {"family": "reasoning_traces", "files": [], "config": config, "input": source}
    (root / "manifest.json").write_text(json.dumps(manifest))
    return root


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("validate", "TRACES"), "traces"),
        (("inspect", "TRACES"), "traces"),
        (("stats", "TRACES"), "traces"),
        (("export", "TRACES", "--out", "out"), "traces"),
        (("traces", "ingest", FROZEN / "transcripts.jsonl", "--source-name", "a"), "traces"),
    ],
    ids=lambda value: "-".join(map(str, value[:2])).replace("/", "_") if isinstance(value, tuple) else value,
)
def test_a_command_names_the_extra_that_it_needs(
    traces: Path, tmp_path: Path, command: tuple[object, ...], extra: str
) -> None:
    words = [str(traces if word == "TRACES" else word) for word in command]
    done = subprocess.run([sys.executable, "-c", BARE, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert f"error: this needs spanloom[{extra}]: " in done.stderr
    assert f"remedy: pip install 'spanloom[{extra}]'" in done.stderr


def test_validate_needs_no_extra(tmp_path: Path) -> None:
    words = ["validate", str(FROZEN / "synth_kd"), "--json"]
    done = subprocess.run([sys.executable, "-c", BARE, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["validation"]["reader"] == "independent"


BARE_PROGRAM = """
import runpy, sys
for package in ("torch", "megatron"):
    sys.modules[package] = None
program = sys.argv.pop(1)
run = runpy.run_path if program.endswith(".py") else runpy.run_module
if program.endswith(".py"):
    sys.path.insert(0, program.rpartition("/")[0])
run(program, run_name="__main__")
"""
"""`python PROGRAM.py` or `python -m PROGRAM` where torch is not installed."""


@pytest.mark.parametrize(
    ("program", "extra"),
    [
        (str(REPOSITORY / "docs/examples/training/gpt.py"), "train"),
        (str(REPOSITORY / "docs/examples/training/chat.py"), "megatron"),
        (str(REPOSITORY / "docs/examples/training/chess.py"), "megatron"),
        *(
            (str(REPOSITORY / f"docs/examples/losses/{name}.py"), "megatron")
            for name in ("reroute", "retain_l2", "triplet", "unlikelihood")
        ),
    ],
    ids=lambda value: Path(value).name,
)
def test_a_program_that_trains_names_the_extra_that_it_needs(program: str, extra: str) -> None:
    done = subprocess.run([sys.executable, "-c", BARE_PROGRAM, program], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"error: this needs spanloom[{extra}]: the package torch is not installed",
        f"  remedy: pip install 'spanloom[{extra}]'",
    ]
