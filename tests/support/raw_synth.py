"""Small raw SYNTH files for tests, and what their conversion left in a folder."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.storage.claim import CLAIM_NAME
from spanloom.storage.folders.repeated import MADE_JSON

COLUMNS = ("query", "synthetic_reasoning", "synthetic_answer", "synth_id")


def raw_row(number: int, **changes: str | None) -> dict[str, str | None]:
    row = {
        "query": f"question {number}",
        "synthetic_reasoning": f"thought {number}",
        "synthetic_answer": f"answer {number}",
        "synth_id": f"id-{number}",
    }
    return {**row, **changes}


def write_raw(path: Path, rows: list[dict[str, str | None]], **options) -> Path:
    names = list(dict.fromkeys(name for row in [raw_row(0), *rows] for name in row))
    table = pa.table({name: pa.array([row.get(name) for row in rows], pa.string()) for name in names})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def numbered(path: Path, rows: int) -> Path:
    return write_raw(path, [raw_row(number) for number in range(rows)])


def shard_rows(out: Path) -> list[list[dict[str, str | None]]]:
    """The rows of each shard, read plainly."""
    return [pq.read_table(path).to_pylist() for path in sorted(out.glob("*.parquet"))]


def shard_ids(out: Path) -> list[list[str | None]]:
    return [[row["synth_id"] for row in rows] for rows in shard_rows(out)]


def tree(directory: Path) -> dict[str, str]:
    """Every file below a directory, hidden ones too, and the hash of its bytes; but for the claim of one that was in a
    bucket, and the record of what a command made."""
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path not in (directory / CLAIM_NAME, directory / MADE_JSON)
    }
