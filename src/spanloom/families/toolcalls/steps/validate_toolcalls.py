"""Step validate-toolcalls: checks files of samples against all rules.

In: a folder of samples. Out: the report as JSON and as an HTML page. The run is strict: errors fail it.
"""

from pathlib import Path
from typing import Any

from spanloom.errors import EXIT_FINDINGS
from spanloom.families.toolcalls.format.source import SUFFIX, files_below
from spanloom.families.toolcalls.report import html_report, json_report
from spanloom.families.toolcalls.rules import Rules
from spanloom.families.toolcalls.validation import validate_files
from spanloom.provenance import readable_json
from spanloom.records.staging import staged_records
from spanloom.storage.scratch import scratch_for


def run(
    *,
    data_dir: str,
    require_system: bool = True,
    report: str | None = None,
    html: str | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Runs the step on paths or URIs. Returns the report, which `exit_code` turns into the exit code."""
    with scratch_for("validate-toolcalls", [data_dir, report, html], scratch) as staging:
        folder = staged_records(staging, data_dir, (SUFFIX,))
        run = validate_files(files_below(folder), Rules(require_system=require_system))
        result = json_report(run, data_dir, strict=True)
        staging.replace(report, readable_json(result))
        staging.replace(html, html_report(run, data_dir).encode())
    return result


def exit_code(result: dict[str, Any]) -> int:
    return EXIT_FINDINGS if result["errors"] else 0


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    names = ("total_samples", "harmful", "retain", "invalid_lines", "errors", "warnings")
    counts = {name: result[name] for name in names}
    return {"report": {"result": result["result"], **counts}, "html": {}, "metrics": counts}
