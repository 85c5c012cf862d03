"""Step audit-toolcalls: renders samples with the chat template that the tokenize step will use.

In: a file of samples, a template. Out: the audit as JSON. Errors fail the run: a mask would be missing or wrong.
"""

from itertools import islice
from pathlib import Path
from typing import Any

from spanloom.errors import EXIT_FINDINGS
from spanloom.families.toolcalls.audit import audit_samples
from spanloom.families.toolcalls.format.rendering import load_template
from spanloom.families.toolcalls.format.source import one_file, read_samples
from spanloom.families.toolcalls.format.tools import load_registries
from spanloom.provenance import readable_json
from spanloom.storage.scratch import scratch_for


def run(
    *, data: str, template: str, limit: int, report: str | None = None, scratch: Path | None = None
) -> dict[str, Any]:
    """Runs the step on paths or URIs. `limit`: audits only the first samples, 0 for all. Returns the audit."""
    with scratch_for("audit-toolcalls", [data, template, report], scratch) as staging:
        files = one_file(staging.file(data))
        samples = ((file.name, line, sample) for file in files for line, sample in read_samples(file))
        render = load_template(staging.file(template)).render
        result = audit_samples(islice(samples, limit or None), render, load_registries()).as_dict()
        staging.replace(report, readable_json(result))
    return result


def exit_code(result: dict[str, Any]) -> int:
    return EXIT_FINDINGS if result["errors"] else 0


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {name: result[name] for name in ("samples", "without_span", "errors", "warnings")}
    return {"report": {"result": result["result"], **counts}, "metrics": counts}
