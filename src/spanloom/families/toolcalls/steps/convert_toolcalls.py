"""Step convert-toolcalls: one public source → files of samples.

In: a file or folder of the source, completions if it needs them, goals of AgentDojo's injection tasks. Out:
`OUT/harmful/NAME.jsonl`, `OUT/retain/NAME.jsonl`, `OUT/rejects/SOURCE.ndjson`, and counts. Without a source the step
writes no samples, so a pipeline can have one task per source.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from spanloom.families.toolcalls.convert.drafts import Options
from spanloom.families.toolcalls.convert.goals import read_goals
from spanloom.families.toolcalls.convert.sources import SUFFIXES, Converted, Source, convert
from spanloom.provenance import readable_json
from spanloom.records.staging import staged_records
from spanloom.storage.scratch import scratch_for


def run(
    *,
    source: Source,
    place: str | None,
    out: str,
    options: Options,
    completions: str | None = None,
    goals: str | None = None,
    report: str | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Runs the step on paths or URIs. If `out` is remote, files are created, never overwritten. Returns the counts."""
    with scratch_for("convert-toolcalls", [source, place, out, completions, goals, report], scratch) as staging:
        if place is None:
            converted = Converted()
        else:
            if goals is not None:
                options = replace(options, goals=read_goals(staging.file(goals)))
            joined = None if completions is None else staging.file(completions)
            converted = convert(source, staged_records(staging, place, SUFFIXES), staging.path(out), options, joined)
            staging.publish_folder(out, last=f"rejects/{source}.ndjson")
        result = {"source": source, "given": place is not None, **converted.as_dict()}
        staging.replace(report, readable_json(result))
    return result


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {
        "records": result["records"],
        **{f"{split}_samples": number for split, number in result["written"].items()},
        "left_out": sum(result["left_out"].values()),
    }
    return {"report": {"source": result["source"], **counts}, "metrics": counts}
