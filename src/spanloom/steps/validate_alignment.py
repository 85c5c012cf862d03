"""The last step of every pipeline: validates, and promotes the pending manifest to the manifest if nothing was found.

In: a dataset root, pending or promoted, and its source if available. Out: the validation's `Report`; its views
beside the dataset; `manifest.json`.
"""

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from spanloom.building.conclude import conclude
from spanloom.dataset import manifest
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.root.places import publish_promoted, staged_root, staged_views
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.findings import Report
from spanloom.kubeflow import report_artifacts
from spanloom.megatron.readers import MEGATRON, ReaderChoice, chosen_reader
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.workers import OnProgress


def validate_alignment(
    *,
    root: Path,
    family: DatasetFamily,
    report_file: Path | None = None,
    html_file: Path | None = None,
    **options: Any,
) -> Report:
    """Validates the dataset at `root`, pending or promoted, and promotes a pending manifest if there are no findings.

    `report_file`, `html_file`: see `conclude`. `options` are those of `validate_dataset`.
    """
    began = monotonic()
    report = validate_dataset(root, family, **options)
    conclude(root, family, report, seconds=monotonic() - began, report_file=report_file, html_file=html_file)
    return report


def run(
    *,
    root: str,
    family_of: Callable[[str], DatasetFamily],
    source: str | None = None,
    deep: int = 0,
    tokenizer: str | None = None,
    reader: ReaderChoice = MEGATRON,
    report: str | None = None,
    html: str | None = None,
    on_progress: OnProgress | None = None,
    scratch: Path | None = None,
) -> Report:
    """The step on paths and URIs. All files of a remote root are staged and checked; on a clean report `manifest.json`
    becomes its last object. `family_of`: family name of a manifest → the family's functions.
    """
    chosen_reader(reader)  # or an error, before anything is fetched
    with scratch_for("validate-alignment", [root, source, report, html], scratch) as staging:
        local_root = staged_root(staging, root)
        views = staged_views(parse_uri(root), local_root) if is_uri(root) else {}
        family = family_of(manifest.read_any(local_root).content.family)
        result = validate_alignment(
            root=local_root,
            family=family,
            source=None if source is None else family.stage_source(staging, source),
            deep=deep,
            tokenizer=family.stage_tokenizer(staging, tokenizer),
            reader=reader,
            report_file=None if report is None else staging.path(report),
            html_file=None if html is None else staging.path(html),
            on_progress=on_progress,
        )
        for place in filter(None, (report, html)):
            staging.publish_file(place, replace=True)
        if is_uri(root) and result.clean:
            publish_promoted(parse_uri(root), local_root, views)
    return result


artifact_metadata = report_artifacts
