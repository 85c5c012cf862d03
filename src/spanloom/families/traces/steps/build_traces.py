"""Step build-traces: a store → the manifest of a dataset in it.

In: a store, a request. Out: `manifest.json`.
"""

from pathlib import Path
from typing import Any

from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.places import opened_store
from spanloom.storage.scratch import scratch_for
from spanloom.storage.temporaries import temporary_folder


def build_traces(
    *, store: str, manifest: str, request: BuildRequest, reproducible: bool = True, scratch: Path | None = None
) -> dict[str, Any]:
    """Selects traces and writes the manifest to a path or URI. Returns the manifest as JSON."""
    with (
        scratch_for("build-traces", [store, manifest], scratch) as staging,
        opened_store(staging, store) as opened,
        temporary_folder("spanloom-") as folder,
    ):
        built, path = build_dataset(opened, Path(folder), request, reproducible=reproducible)
        staging.bring_home(path, manifest)
    return built.as_dict()


run = build_traces
"""The step over paths and URIs, which `build_traces` already accepts: a store may be a database."""


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {name: result["stats"][name] for name in ("avg_step_count", "avg_total_chars")}
    facts = {name: result[name] for name in ("dataset_key", "build_id", "selection_strategy", "trace_count")}
    return {"manifest": {**facts, **counts}, "metrics": {"trace_count": result["trace_count"], **counts}}
