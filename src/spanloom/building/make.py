"""A dataset on one machine: claim the root, make, validate, replace.

In: the root, what the build may write, and functions of the family. Out: a `BuildResult`. A finished dataset that is
the requested one is only validated; another one is a conflict, or is replaced once the new one is valid.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from spanloom.building.conclude import conclude
from spanloom.building.disk import check_disk
from spanloom.building.options import RunOptions
from spanloom.building.validating import validating
from spanloom.conversations.source.rejects import too_many_rejects
from spanloom.dataset import manifest
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Check, Manifest
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
from spanloom.findings import Report
from spanloom.provenance import git_sha
from spanloom.report.progress import Progress
from spanloom.report.views import is_own_view, remove_views

M = TypeVar("M")


@dataclass(frozen=True, kw_only=True)
class Outcome(Generic[M]):
    """A root that was made on this machine. `report.clean`: whether it is valid."""

    root: Path
    manifest: M
    report: Report
    already_built: bool = False


@dataclass(frozen=True, kw_only=True)
class BuildResult:
    """A root that was built on this machine. `report.clean`: whether it is a valid dataset."""

    root: Path
    manifest: Manifest = field(repr=False)  # thousands of characters, which a notebook would print
    report: Report = field(repr=False)
    already_built: bool = False


def identity_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the bytes of a token dataset, besides the code, from the `content` of its manifest as JSON."""
    source = content["input"].get("manifest_sha256") or [file["sha256"] for file in content["input"]["shards"]]
    return {
        "family": content["family"],
        "config": content["config"],
        "source": source,
        "tokenizer": content["tokenizer"]["sha256"],
    }


_DIFFERENT = {
    "family": "it is of another family",
    "config": "it was made with other options, or for another model or template",
    "source": "it was made of another source",
    "tokenizer": "it was made with another tokenizer",
}


def difference(
    content: Mapping[str, Any], finished: Mapping[str, Any], record: BuildRecord, options: RunOptions
) -> str | None:
    """How a finished dataset differs from the requested one, or None. `finished`: its identity."""
    for name, said in _DIFFERENT.items():
        if finished.get(name) != record.identity.get(name):
            return said
    if (content.get("split") or {}).get("repeated_rows") and options.on_duplicate == "error":
        return "it has duplicate ids, which --on-duplicate error does not allow"
    if any(too_many_rejects(shard, options.max_rejects) for shard in content["shards"]):
        return "more rows were refused for it than --max-rejects allows"
    return None


@dataclass(frozen=True, kw_only=True)
class Making(Generic[M]):
    """What a family does in the flow of a build.

    make         writes the data at the root that it receives, and its pending manifest, which it returns
    validate     checks a root; returns the report, and how many seconds that took
    conclude     writes the report of a root, and promotes its manifest if the report is clean; gets the seconds too
    check        that of the manifest's schema
    identity_of  the identity of a finished root, in the form of `BuildRecord.identity`
    bytes_needed about how many bytes `make` will write, parts included
    differs      a further difference of finished data from those requested
    """

    make: Callable[[Path], M]
    validate: Callable[[Path, M], tuple[Report, float]]
    conclude: Callable[[Path, Report, float], None]
    check: Check[M]
    bytes_needed: Callable[[], float]
    identity_of: Callable[[Mapping[str, Any]], dict[str, Any]] = identity_of
    differs: Differs = lambda _: None


def made_and_validated(
    root: Path, record: BuildRecord, options: RunOptions, progress: Progress, making: Making[M]
) -> Outcome[M]:
    """Makes the data at `root`, or keeps the finished ones that are there, and validates them. See `Making`.

    Another finished dataset is a conflict, or with `overwrite` it is replaced once the new one is valid.
    """

    def different(content: Mapping[str, Any]) -> str | None:
        return difference(content, making.identity_of(content), record, options) or making.differs(content)

    with held_root(root) as work:
        if replaced := is_replacing(work):
            progress.say(f"going on to replace the dataset at {root} by the one under {work / NEW_NAME}")
            _say_kept(root, finish_replacing(root, work, is_own_view, making.check), progress)
        old = _to_be_replaced(root, different, options, making.check, replaced=replaced)
        target = root if old is None else work / NEW_NAME

        def claim() -> None:
            if options.disk_check:
                check_disk(root, root if old is None else work, making.bytes_needed())
            made_by = None if old is None else making.identity_of(old).__eq__
            claim_or_discard(root, work, record, made_by=made_by, resume=options.resume, remove_views=remove_views)

        if old is None:
            written, finished = made_or_standing(
                root,
                work,
                record,
                different,
                lambda: making.make(root),
                claim=claim,
                resume=options.resume,
                check=making.check,
            )
        else:
            check_replaceable(root, old, record.files)
            claim()
            progress.say(f"the dataset at {root} stays until the new one, made under {target}, is validated")
            for name in (manifest.MANIFEST_NAME, manifest.PENDING_NAME):  # of a run killed before it replaced
                (target / name).unlink(missing_ok=True)
            try:
                written, finished = making.make(target), False
            except BaseException:
                clear_leftovers(root, work, record)  # terminated workers could not remove their own files
                raise
        if finished:
            progress.say(f"{root} holds this very dataset already; validating it")
        report, seconds = making.validate(target, written)
        making.conclude(target, report, seconds)
        if report.clean and target != root:
            _say_kept(root, replace_dataset(root, work, is_own_view, making.check), progress)
            target = root
        if report.clean and not options.keep_work and is_work_of(work, record):
            for path in remove_work(root):
                progress.say(f"warning: {path} was not made by this build and stays")
    return Outcome(root=target, manifest=written, report=report, already_built=finished)


def build_dataset(
    root: Path,
    record: BuildRecord,
    family: DatasetFamily,
    options: RunOptions,
    progress: Progress,
    *,
    make: Callable[[Path], Manifest],
    bytes_needed: Callable[[], float],
    differs: Differs = lambda _: None,
    **validation: Any,
) -> BuildResult:
    """`made_and_validated` for a token dataset. `validation`: options of `validating`."""

    def concluded(target: Path, report: Report, seconds: float) -> None:
        conclude(
            target,
            family,
            report,
            seconds=seconds,
            report_file=target / REPORT_JSON,
            html_file=target / REPORT_HTML,
            name=root.resolve().name,
        )

    with validating(family, options.reader, progress, **validation) as validate:
        making = Making(
            make=make,
            validate=validate,
            conclude=concluded,
            check=manifest.check,
            bytes_needed=bytes_needed,
            differs=differs,
        )
        return BuildResult(**vars(made_and_validated(root, record, options, progress, making)))


def _to_be_replaced(
    root: Path, differs: Differs, options: RunOptions, check: Check[Any], *, replaced: bool
) -> dict[str, Any] | None:
    """The `content` of the finished dataset at the root that must be replaced, or None.

    `replaced`: this run has just completed a replacement; if that dataset is the requested one, it stays.
    """
    if not options.overwrite or not (root / manifest.MANIFEST_NAME).exists():
        return None
    content: dict[str, Any] = manifest.read_as(root, manifest.as_json(check))["content"]
    is_new = replaced and options.resume and content["git_sha"] == git_sha()
    return None if is_new and differs(content) is None else content


def _say_kept(root: Path, names: Iterable[str], progress: Progress) -> None:
    for name in names:
        progress.say(f"warning: {root / name} was not made by Spanloom, or was edited; it stays as it is")
