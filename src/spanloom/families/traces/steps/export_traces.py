"""Step export-traces: a store and a manifest → one export.

In: a store, the manifest of a dataset in it, a format. Out: JSON Lines, or Parquet if the path ends in `.parquet`.
"""

from pathlib import Path
from typing import Any

from spanloom.families.traces.export.file import ExportCounts, records, write_file
from spanloom.families.traces.export.lines import ExportFormat, ExportOptions
from spanloom.families.traces.places import opened_store, staged_manifest
from spanloom.storage import sha256_file
from spanloom.storage.scratch import scratch_for


def run(
    *,
    store: str,
    manifest: str,
    out: str,
    form: ExportFormat,
    options: ExportOptions | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over places."""
    with scratch_for("export-traces", [store, manifest, out], scratch) as staging:
        dataset, _ = staged_manifest(staging, manifest)
        path, counts = staging.path(out), ExportCounts()
        with opened_store(staging, store) as opened, opened.snapshot() as snapshot:
            rows = records(snapshot, dataset.ids, form, options or ExportOptions(), None, counts)
            write_file(path, rows, form, len(dataset.ids))
        result = {
            "dataset_key": dataset.dataset_key,
            "format": form,
            "bytes": path.stat().st_size,
            "sha256": sha256_file(path),
            **counts.as_dict(tokens=False),
        }
        staging.publish_file(out)
    return result


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {name: result[name] for name in ("exported", "skipped_deleted", "bytes")}
    return {
        "export": {name: result[name] for name in ("dataset_key", "format", "sha256")} | counts,
        "metrics": counts,
    }
