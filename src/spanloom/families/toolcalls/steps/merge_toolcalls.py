"""Step merge-toolcalls: folders of samples of both splits → one file.

In: a folder of harmful files, one of retain files. Out: the merged file, published create-only, and statistics.
"""

from pathlib import Path
from typing import Any

from spanloom.families.toolcalls.format.source import SUFFIX
from spanloom.families.toolcalls.merge.merged import MergeOptions, lines_of_samples, merge
from spanloom.provenance import readable_json
from spanloom.records.staging import staged_records
from spanloom.storage import sha256_file, write_atomically
from spanloom.storage.scratch import scratch_for


def run(
    *,
    harmful_dir: str,
    retain_dir: str,
    output: str,
    options: MergeOptions,
    eval_output: str | None = None,
    stats: str | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Runs the step on paths or URIs. Nothing is written if a check fails. Returns the statistics."""
    places = [harmful_dir, retain_dir, output, eval_output, stats]
    with scratch_for("merge-toolcalls", places, scratch) as staging:
        folders = [staged_records(staging, place, (SUFFIX,)) for place in (harmful_dir, retain_dir)]
        merged = merge(folders[0], folders[1], options)
        for place, samples in ((output, merged.train), (eval_output, merged.evaluation)):
            if place is not None:
                write_atomically(staging.path(place), lines_of_samples(samples))
                staging.publish_file(place)
        result = {"output": output, "sha256": sha256_file(staging.path(output)), **merged.stats}
        staging.replace(stats, readable_json(result))
    return result


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {
        "samples": result["total"],
        **{f"{split}_samples": number for split, number in result["by_split"].items()},
        **{f"counted_{name}": number for name, number in result["counted"].items()},
    }
    return {"stats": {"sha256": result["sha256"], **counts}, "metrics": counts}
