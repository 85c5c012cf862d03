"""A teacher, step 2, once per task: checks the signals that the task has published against their shards.

In: the root of a dataset, the inventory of score-teacher and the arrays that it names. Out: the `Report`; without
findings the inventory as validated, for join-teacher. Of places at URIs only the task's own shards are staged.
"""

from pathlib import Path
from typing import Any

from spanloom.dataset import manifest
from spanloom.dataset.root.places import staged_root
from spanloom.dataset.validate.by_shard import stage_shards
from spanloom.findings import Report
from spanloom.kubeflow import report_artifacts
from spanloom.megatron.readers import chosen_reader, open_with
from spanloom.provenance import readable_json
from spanloom.storage.scratch import scratch_for
from spanloom.storage.staging import Download, stage_files
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.teacher.join import read_inventory
from spanloom.teacher.validate import SignalsCheck
from spanloom.workers import OnProgress


def run(
    *,
    root: str,
    out: str,
    inventory: str,
    validated: str,
    on_progress: OnProgress | None = None,
    scratch: Path | None = None,
) -> Report:
    """The step on paths and URIs. `out`: where the arrays are; `validated`: the place for the validated inventory.

    Raises ArtifactError for something else than an inventory, DatasetError if it is of another dataset.
    """
    reader = chosen_reader()
    with scratch_for("validate-teacher", [root, out, inventory, validated], scratch) as staging:
        made = read_inventory(staging.file(inventory))
        dataset, signals = staged_root(staging, root, only=lambda name: False), staging.path(out)  # noqa: ARG005
        stage_shards(staging, root, manifest.read(dataset).content, {shard for _, shard in made.content.places})
        if is_uri(out):
            shards = [each for split in made.content.splits.values() for each in split.shards]
            names = [file.path for each in shards for file in each.files]
            stage_files([Download(uri=parse_uri(out) / name, path=signals / name) for name in names])
        listing = [each.model_dump_json() for each in made.without]
        check = SignalsCheck(signals, dataset, made.content, open_with(reader), listing=listing)
        report = check.run(on_progress)
        report.reader = reader
        if report.clean:
            passed = made.model_copy(update={"validated": report.checked})
            staging.replace(validated, readable_json(passed.model_dump()))
    return report


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    shown = report_artifacts(result)
    return {"validated": shown["report"], "metrics": shown["metrics"]}
