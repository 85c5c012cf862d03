"""A dataset on one machine: claim the root, make, validate, replace.

In: the root, what the build may write, and functions of the family. Out: a `BuildResult`. A finished dataset that is
the requested one is only validated; another one is a conflict, or is replaced once the new one is valid.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from spanloom.building.options import RunOptions
from spanloom.conversations.source.rejects import reject_limit
from spanloom.dataset import manifest
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Content, Manifest
from spanloom.dataset.root.layout import REPORT_HTML, REPORT_JSON
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
from spanloom.dataset.root.replace import check_replaceable, finish_replacing, is_replacing, replace_dataset
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.findings import Report
from spanloom.megatron.readers import ReaderChoice, chosen_reader, load_reader
from spanloom.provenance import git_sha
from spanloom.report.progress import Progress
from spanloom.report.views import is_own_view, remove_views
from spanloom.steps.validate_alignment import conclude
from spanloom.storage import remove_if_empty


@dataclass(frozen=True, kw_only=True)
class BuildResult:
    """A root that was built on this machine. `report.clean`: whether it is a valid dataset."""

    root: Path
    manifest: Manifest
    report: Report
    already_built: bool = False


def identity_of(content: Content) -> dict[str, Any]:
    """What decides the bytes of a dataset, besides the code, as its manifest has it."""
    source = content.input.manifest_sha256 or [file.sha256 for file in content.input.shards]
    return {
        "family": content.family,
        "config": content.config,
        "source": source,
        "tokenizer": content.tokenizer.sha256,
    }


_DIFFERENT = {
    "family": "it is of another family",
    "config": "it was made with other options, or for another model or template",
    "source": "it was made of another source",
    "tokenizer": "it was made with another tokenizer",
}


def difference(content: Content, identity: dict[str, Any], options: RunOptions) -> str | None:
    """How a finished dataset differs from the requested one, or None. `identity`: see `identity_of`."""
    finished = identity_of(content)
    for name, said in _DIFFERENT.items():
        if finished[name] != identity[name]:
            return said
    if content.split is not None and content.split.repeated_rows and options.on_duplicate == "error":
        return "it has duplicate ids, which --on-duplicate error does not allow"
    limit = options.max_rejects
    for shard in content.shards:
        if limit is not None and sum(shard.rejected.values()) > reject_limit(limit, shard.rows_read):
            return "more rows were refused for it than --max-rejects allows"
    return None


Validate = Callable[[Path, Manifest], tuple[Report, float]]
"""Function: a root and its manifest → the report of its validation, and how many seconds that took."""


def made_and_validated(
    root: Path,
    record: BuildRecord,
    family: DatasetFamily,
    options: RunOptions,
    progress: Progress,
    *,
    make: Callable[[Path], Manifest | None],
    validate: Validate,
    before: Callable[[Path], None] | None = None,
    differs: Differs | None = None,
) -> BuildResult | None:
    """Makes the dataset at `root`, or keeps the finished one that is there, and validates it.

    `record`: its identity is in the form of `identity_of`. `make` writes the dataset at the root that it receives; if
    it returns None, so does this function, and nothing is left at the root. `before` is called before the root is
    claimed, with the folder of files that an unfinished build may have left. `differs`: a further difference of a
    finished dataset from the requested one.
    """

    def different(content: Content) -> str | None:
        return difference(content, record.identity, options) or (differs(content) if differs is not None else None)

    with held_root(root) as work:
        if replaced := is_replacing(work):
            progress.say(f"going on to replace the dataset at {root} by the one under {work / NEW_NAME}")
            _say_kept(root, finish_replacing(root, work, is_own_view), progress)
        old = _to_be_replaced(root, different, options, replaced=replaced)
        target = root if old is None else work / NEW_NAME

        def claim() -> None:
            if before is not None:
                before(root if old is None else work)
            made_by = None if old is None else identity_of(old.content).__eq__
            claim_or_discard(root, work, record, made_by=made_by, resume=options.resume, remove_views=remove_views)

        if old is None:
            written, finished = made_or_standing(
                root, work, record, different, lambda: make(root), claim=claim, resume=options.resume
            )
        else:
            check_replaceable(root, old.content, record.files)
            claim()
            progress.say(f"the dataset at {root} stays until the new one, made under {target}, is validated")
            for name in (manifest.MANIFEST_NAME, manifest.PENDING_NAME):  # of a run killed before it replaced
                (target / name).unlink(missing_ok=True)
            try:
                written, finished = make(target), False
            except BaseException:
                clear_leftovers(root, work, record)  # terminated workers could not remove their own files
                raise
        if finished:
            progress.say(f"{root} holds this very dataset already; validating it")
        if written is None:
            remove_work(root)
            remove_if_empty(root)
            return None
        report, seconds = validate(target, written)
        conclude(
            target,
            family,
            report,
            seconds=seconds,
            report_file=target / REPORT_JSON,
            html_file=target / REPORT_HTML,
            name=root.resolve().name,
        )
        if report.clean and target != root:
            _say_kept(root, replace_dataset(root, work, is_own_view), progress)
            target = root
        if report.clean and not options.keep_work and is_work_of(work, record):
            for path in remove_work(root):
                progress.say(f"warning: {path} was not made by this build and stays")
    return BuildResult(root=target, manifest=written, report=report, already_built=finished)


def _to_be_replaced(root: Path, differs: Differs, options: RunOptions, *, replaced: bool) -> Manifest | None:
    """The finished dataset at the root that must be replaced, or None.

    `replaced`: this run has just completed a replacement; if that dataset is the requested one, it stays.
    """
    if not options.overwrite or not (root / manifest.MANIFEST_NAME).exists():
        return None
    finished = manifest.read(root)
    is_new = replaced and options.resume and finished.content.git_sha == git_sha()
    return None if is_new and differs(finished.content) is None else finished


def _say_kept(root: Path, names: Iterable[str], progress: Progress) -> None:
    for name in names:
        progress.say(f"warning: {root / name} was not made by Spanloom, or was edited; it stays as it is")


def validated_here(
    family: DatasetFamily, progress: Progress, reader: ReaderChoice, *, unit: str = "documents", **options: Any
) -> Validate:
    """Validation in this process. `unit`: what progress counts; `options`: those of `validate_dataset`."""

    def validate(root: Path, written: Manifest) -> tuple[Report, float]:  # noqa: ARG001  # see `Validate`
        load_reader(chosen_reader(reader))
        began = monotonic()
        with progress.stage("validate"), progress.counting("validate", unit) as on_progress:
            report = validate_dataset(root, family, reader=reader, on_progress=on_progress, **options)
        return report, monotonic() - began

    return validate
