"""Small `synth_harmony_v1` sources for tests: rows in, a folder with shards and a right manifest out."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
VIEWS = ["README.md", "manifest.json", "report.html", "report.json"]
"""The files at the root of a finished dataset."""
COLUMNS = ("messages_json", "metadata_json", "synth_id", "language", "exercise", "model", "constraints", "seed_license")


def conversation(
    user: str = "Why?", analysis: str | None = "Because.", final: str | None = "So."
) -> list[dict[str, Any]]:
    """Messages as plain dicts: a question, reasoning, an answer (either may be left out)."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": user}]
    for channel, text in (("analysis", analysis), ("final", final)):
        if text is not None:
            messages.append({"role": "assistant", "channel": channel, "content": text})
    return messages


def row(synth_id: str, messages: list[dict[str, Any]] | None = None, **columns: Any) -> Row:
    """One right row; `columns` replaces any of its columns."""
    messages = (
        conversation(f"Question {synth_id}?", f"Thinking about {synth_id}.", f"Answer {synth_id}.")
        if messages is None
        else messages
    )
    return {
        "messages_json": json.dumps({"messages": messages}),
        "metadata_json": json.dumps({"synth_id": synth_id, "language": "en"}),
        "synth_id": synth_id,
        "language": "en",
        "exercise": "qa",
        "model": None,
        "constraints": None,
        "seed_license": None,
        **columns,
    }


def rows(count: int, prefix: str = "id") -> list[Row]:
    """`count` right rows with ids `prefix-0`, `prefix-1`, …"""
    return [row(f"{prefix}-{index}") for index in range(count)]


def write_source(
    directory: Path,
    shards: Sequence[Sequence[Row]],
    *,
    row_group_size: int = 4096,
    column_type: pa.DataType | None = None,
) -> Path:
    """Writes the shards and a manifest that fits them. Returns the folder."""
    directory.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([(name, column_type or pa.string()) for name in COLUMNS])
    for index, shard in enumerate(shards):
        table = pa.Table.from_pylist([{name: row[name] for name in COLUMNS} for row in shard], schema=schema)
        pq.write_table(table, directory / shard_name(index), row_group_size=row_group_size)
    write_manifest(directory, len(shards))
    return directory


def shard_name(shard: int) -> str:
    return f"synth_harmony_shard_{shard:02d}.parquet"


def write_manifest(directory: Path, shards: int = 4, **changes: Any) -> None:
    """Writes a manifest for the shards as they lie there now; `changes` replaces its top-level keys."""
    manifest = {
        "schema_version": "synth_harmony_v1",
        "conversion": {"dataset": "test"},
        "storage": storage(directory, [shard_name(index) for index in range(shards)], "synth_harmony_shard_*.parquet"),
        **changes,
    }
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=2))


def storage(directory: Path, names: Sequence[str], glob: str) -> dict[str, Any]:
    """What a source's manifest says of its shards, as they lie there now."""
    entries = []
    for name in names:
        data = (directory / name).read_bytes()
        try:
            count = pq.read_metadata(directory / name).num_rows
        except pa.ArrowInvalid:  # a test broke this shard on purpose
            count = 0
        entries.append({"path": name, "rows": count, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    total = sum(entry["rows"] for entry in entries)
    return {"format": "parquet", "glob": glob, "total_rows": total, "shards": entries}


def data_files(root: Path) -> dict[str, bytes]:
    """Every file of a dataset that its manifest lists, by relative path."""
    folders = ("train", "valid", "rejects")
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for folder in folders
        for path in sorted((root / folder).glob("*"))
    }


def content(root: Path) -> dict[str, Any]:
    """The `content` section of a manifest: a dataset's, or that of a teacher's signals."""
    signals = root / "teacher.json"
    return dict(json.loads((signals if signals.exists() else root / "manifest.json").read_bytes())["content"])
