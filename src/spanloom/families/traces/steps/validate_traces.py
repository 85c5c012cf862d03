"""Step validate-traces: exports held against their rules and their manifest.

In: exports with their formats, a manifest. Out: a report of the findings of all.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spanloom.errors import EXIT_FINDINGS
from spanloom.families.traces.export import ExportFormat
from spanloom.families.traces.manifest import load_ids
from spanloom.families.traces.verify_export import CheckedExport, check_export
from spanloom.provenance import readable_json
from spanloom.storage.scratch import scratch_for


def validate_traces(
    *, exports: Mapping[ExportFormat, Path], ids: Sequence[str] | None = None
) -> dict[ExportFormat, CheckedExport]:
    """The findings of each export. `ids`: those of the manifest."""
    return {form: check_export(path, form, ids) for form, path in exports.items()}


def run(
    *,
    exports: Mapping[ExportFormat, str],
    manifest: str | None = None,
    report: str | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over places. `exports`: format → file."""
    with scratch_for("validate-traces", [*exports.values(), manifest, report], scratch) as here:
        ids = None if manifest is None else load_ids(here.file(manifest), manifest)
        checked = validate_traces(exports={form: here.file(place) for form, place in exports.items()}, ids=ids)
        errors = sum(one.report.errors for one in checked.values())
        result = {
            "clean": not errors,
            "errors": errors,
            "warnings": sum(len(one.report.findings) - one.report.errors for one in checked.values()),
            "lines": sum(one.lines for one in checked.values()),
            "exports": {form: {**one.as_dict(), "file": exports[form]} for form, one in checked.items()},
        }
        here.replace(report, readable_json(result))
    return result


def exit_code(result: Mapping[str, Any]) -> int:
    """Of a command that ends with this result."""
    return 0 if result["clean"] else EXIT_FINDINGS


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What Kubeflow shows of this step's artifacts: artifact → metadata. `result`: what `run` returns."""
    counts = {name: result[name] for name in ("errors", "warnings", "lines")}
    return {"report": {"clean": result["clean"], **counts}, "metrics": counts}
