"""The last step of every pipeline: validate, and turn the pending manifest into the manifest when nothing was found.

In: a dataset root, pending or promoted, and its source where it is at hand. Out: the validation's `Report`; its views
beside the dataset; `manifest.json`.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from spanloom.dataset import manifest
from spanloom.dataset.facts import dataset_facts
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Manifest
from spanloom.dataset.root.layout import CARD_NAME, REPORT_HTML, REPORT_JSON
from spanloom.dataset.root.lock import BuildRecord, held_root, is_work_of, remove_work
from spanloom.dataset.root.made import Differs, made_or_standing
from spanloom.dataset.root.places import publish_promoted, staged_root, staged_views
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.findings import Report
from spanloom.kubeflow import report_artifacts
from spanloom.megatron.official import load_reader
from spanloom.report.views import write_card, write_report, write_report_at
from spanloom.storage import remove_if_empty
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.workers import OnProgress

if TYPE_CHECKING:  # the step itself needs no terminal
    from spanloom.report.progress import Progress


def validate_alignment(
    *, root: Path, family: DatasetFamily, report_file: Path | None = None, html_file: Path | None = None, **options: Any
) -> Report:
    """Validates the dataset at `root`, pending or promoted, and promotes a pending manifest when there is no finding.

    `report_file`, `html_file`: see `conclude`. `options` are those of `validate_dataset`.
    """
    began = monotonic()
    report = validate_dataset(root, family, **options)
    conclude(root, family, report, seconds=monotonic() - began, report_file=report_file, html_file=html_file)
    return report


@dataclass(frozen=True, kw_only=True)
class BuildResult:
    """A root that was made on this machine. `report.clean` says whether it is a dataset."""

    root: Path
    manifest: Manifest
    report: Report
    already_built: bool = False


def made_and_validated(
    root: Path,
    record: BuildRecord,
    family: DatasetFamily,
    progress: "Progress",
    *,
    differs: Differs,
    make: Callable[[], Manifest | None],
    unit: str = "documents",
    **options: Any,
) -> BuildResult | None:
    """Makes the dataset at `root`, or takes the finished one that stands there, and validates it.

    `differs` and `make`: see `made_or_standing`; None where `make` returns None, and nothing is left then. `options`
    are those of `validate_alignment`.
    """
    with held_root(root) as work:
        written, finished = made_or_standing(root, work, record, differs, make)
        if finished:
            progress.say(f"{root} holds this very dataset already; validating it")
        if written is None:
            remove_work(root)
            remove_if_empty(root)
            return None
        load_reader()
        with progress.stage("validate"), progress.counting("validate", unit) as on_progress:
            report = validate_alignment(
                root=root,
                family=family,
                report_file=root / REPORT_JSON,
                html_file=root / REPORT_HTML,
                on_progress=on_progress,
                **options,
            )
        if report.clean and is_work_of(work, record):
            for path in remove_work(root):
                progress.say(f"warning: {path} was not made by this build and stays")
    return BuildResult(root=root, manifest=written, report=report, already_built=finished)


def conclude(
    root: Path,
    family: DatasetFamily,
    report: Report,
    *,
    seconds: float,
    report_file: Path | None = None,
    html_file: Path | None = None,
    name: str | None = None,
) -> None:
    """Writes down what validation found in `seconds`, and promotes a pending manifest when it found nothing.

    Writes the report to `report_file` (JSON) and `html_file` either way. Beside a pending manifest it writes the report
    too, and the card before it promotes. A file of somebody else that has the name of a view at the root stays, which
    is said on stderr. `name`: see `dataset_facts`.
    """
    written = manifest.read_any(root)
    facts = dataset_facts(root, written, family, report, timings={"validate": round(seconds, 3)}, name=name)
    pending = (root / manifest.PENDING_NAME).exists()
    at_root = (root / REPORT_JSON, root / REPORT_HTML)
    kept: list[Path] = []
    if (report_file, html_file) != at_root:
        write_report(facts, written.content, family, json_file=report_file, html_file=html_file)
    if pending or (report_file, html_file) == at_root:
        kept += write_report_at(root, facts, written.content, family)
    if pending and report.clean:
        if not write_card(root, written.content, family):
            kept.append(root / CARD_NAME)
        manifest.promote(root)
    for path in kept:
        print(f"warning: {path} was not made by Spanloom, or was edited; it stays as it is", file=sys.stderr)


def run(
    *,
    root: str,
    family_of: Callable[[str], DatasetFamily],
    source: str | None = None,
    deep: int = 0,
    tokenizer: str | None = None,
    report: str | None = None,
    html: str | None = None,
    on_progress: OnProgress | None = None,
    scratch: Path | None = None,
) -> Report:
    """The step over places. Of a remote root all is staged and checked; on a clean report `manifest.json` becomes its
    last object. `family_of`: from the family that a manifest names to its functions.
    """
    with scratch_for("validate-alignment", [root, source, report, html], scratch) as here:
        local_root = staged_root(here, root)
        standing = staged_views(parse_uri(root), local_root) if is_uri(root) else {}
        family = family_of(manifest.read_any(local_root).content.family)
        result = validate_alignment(
            root=local_root,
            family=family,
            source=None if source is None else family.stage_source(here, source),
            deep=deep,
            tokenizer=family.stage_tokenizer(here, tokenizer),
            report_file=None if report is None else here.path(report),
            html_file=None if html is None else here.path(html),
            on_progress=on_progress,
        )
        for place in filter(None, (report, html)):
            here.publish_file(place, replace=True)
        if is_uri(root) and result.clean:
            publish_promoted(parse_uri(root), local_root, standing)
    return result


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What Kubeflow shows of this step's artifacts: artifact → metadata. `result`: the report as JSON."""
    return report_artifacts(result)
