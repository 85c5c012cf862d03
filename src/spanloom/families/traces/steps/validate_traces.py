"""Step validate-traces: checks exports against their rules and their manifest.

In: exports with their formats, a manifest. Out: a report with all findings.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spanloom.errors import EXIT_FINDINGS
from spanloom.families.traces.export.lines import ExportFormat
from spanloom.families.traces.store.manifest import load_ids
from spanloom.families.traces.verify.export import check_export
from spanloom.provenance import readable_json
from spanloom.storage.scratch import scratch_for


def run(
    *,
    exports: Mapping[ExportFormat, str],
    manifest: str | None = None,
    report: str | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over places. `exports`: format → file."""
    with scratch_for("validate-traces", [*exports.values(), manifest, report], scratch) as staging:
        ids = None if manifest is None else load_ids(staging.file(manifest), manifest)
        checked = {form: check_export(staging.file(place), form, ids) for form, place in exports.items()}
        errors = sum(export.report.errors for export in checked.values())
        result = {
            "clean": not errors,
            "errors": errors,
            "warnings": sum(len(export.report.findings) - export.report.errors for export in checked.values()),
            "lines": sum(export.lines for export in checked.values()),
            "exports": {form: {**export.as_dict(), "file": exports[form]} for form, export in checked.items()},
        }
        staging.replace(report, readable_json(result))
    return result


def exit_code(result: Mapping[str, Any]) -> int:
    """The exit code of a command with this result."""
    return 0 if result["clean"] else EXIT_FINDINGS


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {name: result[name] for name in ("errors", "warnings", "lines")}
    return {"report": {"clean": result["clean"], **counts}, "metrics": counts}
