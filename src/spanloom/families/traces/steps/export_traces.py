"""Step export-traces: a store and a manifest → one export.

In: a store, the manifest of a dataset in it, a format. Out: JSON Lines, or Parquet where the place ends so.
"""

from pathlib import Path
from typing import Any

from spanloom.families.traces.export.file import ExportCounts, records, write_file
from spanloom.families.traces.export.lines import ExportFormat, ExportOptions
from spanloom.families.traces.places import opened_store, staged_manifest
from spanloom.families.traces.store.database import Store
from spanloom.families.traces.store.manifest import TraceManifest
from spanloom.storage import sha256_file
from spanloom.storage.scratch import scratch_for


def export_traces(
    *, store: Store, dataset: TraceManifest, out: Path, form: ExportFormat, options: ExportOptions
) -> ExportCounts:
    """Writes the export; nothing stands at `out` before it is whole."""
    counts = ExportCounts()
    with store.snapshot() as snapshot:
        rows = records(snapshot, dataset.ids, form, options, None, counts)
        write_file(out, rows, form, len(dataset.ids))
    return counts


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
        path = staging.path(out)
        with opened_store(staging, store) as opened:
            counts = export_traces(
                store=opened, dataset=dataset, out=path, form=form, options=options or ExportOptions()
            )
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
    """What Kubeflow shows of this step's artifacts: artifact → metadata. `result`: what `run` returns."""
    counts = {name: result[name] for name in ("exported", "skipped_deleted", "bytes")}
    return {
        "export": {name: result[name] for name in ("dataset_key", "format", "sha256")} | counts,
        "metrics": counts,
    }
