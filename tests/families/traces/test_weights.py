"""Documents weighed by a number of meta: the column `weight`, what validation finds in it, what is no weight."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import Cli
from spanloom.dataset.root.layout import rows_file
from spanloom.training.samples.document_weights import document_weights


def made(cli: Cli, root: Path, *, key: str, where: str) -> Path:
    """A token dataset of ten traces whose reward is their number, weighed by `key`."""
    steps = [{"i": 0, "type": "t", "content": "a step"}]
    traces = [
        {
            "trace_version": "1.0",
            "prompt": f"q {number}",
            "final_answer": "a",
            "steps": steps,
            "meta": {"reward": number - 1, "format": number},
        }
        for number in range(10)
    ]
    (root / "t.jsonl").write_text("".join(json.dumps(trace) + "\n" for trace in traces))
    traces_at = ("traces", "--root", root)
    cli(*traces_at, "sample", "--out", root / "s.jsonl", "--tokenizer", root / "tokenizer.json")
    assert cli(*traces_at, "ingest", root / "t.jsonl", "--source-name", "s").returncode == 0
    assert cli(*traces_at, "build", "--name", "d", "--version", "1", "--where", where).returncode == 0
    out = root / "tokens"
    done = cli(
        *(*traces_at, "tokenize", "d-1", "--tokenizer", root / "tokenizer.json", "--out", out, "--weight", key),
        *("--valid-fraction", 0.3, "--allow-unknown-sha"),
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    cli(*traces_at, "export", "d-1", "--format", "tunix_sft", "--out", root / "export.jsonl")
    return out


def test_weights_are_numbers_of_meta(cli: Cli, tmp_path: Path) -> None:
    out = made(cli, tmp_path, key="reward", where="reward >= 0")
    weights = [weight for split in ("train", "valid") for weight in document_weights(out, split, 0)]
    assert sorted(weights) == list(range(9))
    assert cli("validate", out, "--source", tmp_path / "export.jsonl").returncode == 0
    path = rows_file(out, "train", 0)
    table = pq.read_table(path)
    changed = table.set_column(
        table.schema.get_field_index("weight"), table.schema.field("weight"), pa.array([-1.0] * table.num_rows)
    )
    pq.write_table(changed, path)
    found = cli("validate", out)
    assert found.returncode == 4
    assert "the weight -1.0 is not a number of 0 or more" in found.stdout + found.stderr


def test_a_key_that_the_exporter_has_too_weighs_by_meta(cli: Cli, tmp_path: Path) -> None:
    out = made(cli, tmp_path, key="format", where="reward >= -1")
    weights = [weight for split in ("train", "valid") for weight in document_weights(out, split, 0)]
    assert sorted(weights) == list(range(10))
    assert cli("validate", out, "--source", tmp_path / "export.jsonl").returncode == 0


def test_what_is_no_weight(cli: Cli, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="a weight is a number of 0 or more"):
        made(cli, tmp_path, key="reward", where="reward >= -1")
