"""The last step of every pipeline: validates, and promotes the pending manifest to the manifest if nothing was found.

In: a dataset root, pending or promoted, and its source if available. Out: the validation's `Report`; its views
beside the dataset; `manifest.json`.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from spanloom.dataset import manifest
from spanloom.dataset.facts import dataset_facts
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Content, Manifest
from spanloom.dataset.root.layout import CARD_NAME, REPORT_HTML, REPORT_JSON
from spanloom.dataset.root.lock import (
    NEW_NAME,
    BuildRecord,
    claim_or_discard,
    clear_leftovers,
    held_root,
    is_work_of,
    remove_work,
)
from spanloom.dataset.root.made import Differs, made_or_standing
from spanloom.dataset.root.places import publish_promoted, staged_root, staged_views
from spanloom.dataset.root.replace import check_replaceable, finish_replacing, is_replacing, replace_dataset
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.findings import Report
from spanloom.kubeflow import report_artifacts
from spanloom.megatron.readers import MEGATRON, ReaderChoice, chosen_reader, load_reader
from spanloom.provenance import git_sha
from spanloom.report.views import is_own_view, remove_views, write_card, write_report, write_report_at
from spanloom.storage import remove_if_empty
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.workers import OnProgress

if TYPE_CHECKING:  # the step itself needs no terminal
    from spanloom.report.progress import Progress


def validate_alignment(
    *,
    root: Path,
    family: DatasetFamily,
    report_file: Path | None = None,
    html_file: Path | None = None,
    name: str | None = None,
    **options: Any,
) -> Report:
    """Validates the dataset at `root`, pending or promoted, and promotes a pending manifest if there are no findings.

    `report_file`, `html_file`, `name`: see `conclude`. `options` are those of `validate_dataset`.
    """
    began = monotonic()
    report = validate_dataset(root, family, **options)
    conclude(root, family, report, seconds=monotonic() - began, report_file=report_file, html_file=html_file, name=name)
    return report


@dataclass(frozen=True, kw_only=True)
class BuildResult:
    """A root that was built on this machine. `report.clean`: whether it is a valid dataset."""

    root: Path
    manifest: Manifest
    report: Report
    already_built: bool = False


@dataclass(frozen=True, kw_only=True)
class Replacing:
    """What a build does with an existing root.

    overwrite       a finished dataset is replaced; it stays until the new one is validated
    resume          an unfinished build is resumed; otherwise its files are discarded
    is_identity_of  whether a finished dataset was made by the build of this identity
    """

    overwrite: bool
    resume: bool
    is_identity_of: Callable[[Content, dict[str, Any]], bool]


def made_and_validated(
    root: Path,
    record: BuildRecord,
    family: DatasetFamily,
    progress: "Progress",
    *,
    differs: Differs,
    make: Callable[[Path], Manifest | None],
    unit: str = "documents",
    replacing: Replacing | None = None,
    keep_work: bool = False,
    reader: ReaderChoice = "auto",
    **options: Any,
) -> BuildResult | None:
    """Makes the dataset at `root`, or keeps the finished one that is there, and validates it.

    `differs`: see `made_or_standing`. `make` writes the dataset at the root that it receives. If `make` returns None,
    so does this function, and nothing is left at the root. `replacing`: for builds that can replace a finished dataset
    or discard an unfinished build. `keep_work`: keeps intermediate files. `reader`: the reader of validation.
    `options` are those of `validate_alignment`.
    """
    with held_root(root) as work:
        if replaced := replacing is not None and is_replacing(work):
            progress.say(f"going on to replace the dataset at {root} by the one under {work / NEW_NAME}")
            _say_kept(root, finish_replacing(root, work, is_own_view), progress)
        replaceable = _to_be_replaced(root, differs, replacing, replaced=replaced)
        target = root if replaceable is None else work / NEW_NAME

        def claim() -> None:
            assert replacing is not None
            made_by = None if replaceable is None else partial(replacing.is_identity_of, replaceable.content)
            claim_or_discard(root, work, record, made_by=made_by, resume=replacing.resume, remove_views=remove_views)

        if replaceable is None:
            written, finished = made_or_standing(
                root,
                work,
                record,
                differs,
                lambda: make(root),
                claim=None if replacing is None else claim,
                resume=replacing is None or replacing.resume,
            )
        else:
            check_replaceable(root, replaceable.content, record.files)
            claim()
            progress.say(f"the dataset at {root} stays until the new one, made under {target}, is validated")
            for name in (manifest.MANIFEST_NAME, manifest.PENDING_NAME):  # of a run killed before it replaced
                (target / name).unlink(missing_ok=True)
            try:
                written, finished = make(target), False
            except BaseException:
                clear_leftovers(root, work, record)
                raise
        if finished:
            progress.say(f"{root} holds this very dataset already; validating it")
        if written is None:
            remove_work(root)
            remove_if_empty(root)
            return None
        load_reader(chosen_reader(reader))
        with progress.stage("validate"), progress.counting("validate", unit) as on_progress:
            report = validate_alignment(
                root=target,
                family=family,
                report_file=target / REPORT_JSON,
                html_file=target / REPORT_HTML,
                name=root.resolve().name,
                on_progress=on_progress,
                reader=reader,
                **options,
            )
        if report.clean and target != root:
            _say_kept(root, replace_dataset(root, work, is_own_view), progress)
            target = root
        if report.clean and not keep_work and is_work_of(work, record):
            for path in remove_work(root):
                progress.say(f"warning: {path} was not made by this build and stays")
    return BuildResult(root=target, manifest=written, report=report, already_built=finished)


def _to_be_replaced(root: Path, differs: Differs, replacing: Replacing | None, *, replaced: bool) -> Manifest | None:
    """The finished dataset at the root that must be replaced, or None.

    `replaced`: this run has just completed a replacement; if that dataset is the requested one, it stays.
    """
    if replacing is None or not replacing.overwrite or not (root / manifest.MANIFEST_NAME).exists():
        return None
    finished = manifest.read(root)
    is_new = replaced and replacing.resume and finished.content.git_sha == git_sha()
    return None if is_new and differs(finished.content) is None else finished


def _say_kept(root: Path, names: Iterable[str], progress: "Progress") -> None:
    for name in names:
        progress.say(f"warning: {root / name} was not made by Spanloom, or was edited; it stays as it is")


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
    """Writes the findings of a validation that took `seconds`, and promotes a pending manifest if there are none.

    Writes the report to `report_file` (JSON) and `html_file` in either case. With a pending manifest it also writes the
    report at the root, and the card before promotion. A foreign file with the name of a view stays at the root, with a
    warning on stderr. `name`: see `dataset_facts`.
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
        if not write_card(root, written.content, family, report):
            kept.append(root / CARD_NAME)
        manifest.promote(root, environment={"reader": report.reader})
    for path in kept:
        print(f"warning: {path} was not made by Spanloom, or was edited; it stays as it is", file=sys.stderr)


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
    load_reader(chosen_reader(reader))
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


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return report_artifacts(result)
