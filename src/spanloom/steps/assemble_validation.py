"""The last step of a pipeline that validates shards separately: joins their reports, does the global checks, promotes.

In: the reports and digests of all shards; a dataset root, of which only the manifest, the row tables, the files that
belong to no shard and the listing are read. Out: the same as validate-alignment's for this dataset.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

from spanloom.building.conclude import conclude
from spanloom.dataset import manifest
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.root.inventory import files_below
from spanloom.dataset.root.layout import REJECTS
from spanloom.dataset.root.places import listed_root, publish_promoted, staged_root, staged_views
from spanloom.dataset.validate.by_shard import Listing, RootFile, join_shards
from spanloom.errors import SpanloomError
from spanloom.findings import Report
from spanloom.kubeflow import report_artifacts
from spanloom.split import SPLITS
from spanloom.storage.scratch import chosen_scratch, scratch_for
from spanloom.storage.uri import is_uri, parse_uri


def run(
    *,
    root: str,
    shard_reports: Sequence[str],
    shard_digests: Sequence[str],
    family_of: Callable[[str], DatasetFamily],
    source: str | None = None,
    report: str | None = None,
    html: str | None = None,
    scratch: Path | None = None,
) -> Report:
    """The step on paths and URIs. On a clean report `manifest.json` becomes the last object of a remote root.

    `shard_reports`, `shard_digests`: of all shards, in order. `source`: what the shards must have been checked against;
    it is not read. `family_of`: see validate_shard.
    """
    if len(shard_reports) != len(shard_digests):
        message = f"{len(shard_reports)} reports of shards are given, but {len(shard_digests)} files of digests"
        raise SpanloomError(message, remedy="give --shard-report and --shard-digests once for each shard, in order")
    places = [root, report, html, *shard_reports, *shard_digests]
    with scratch_for("assemble-validation", places, scratch) as staging:
        began = monotonic()
        files = [
            (staging.file(shard_report), staging.file(shard_digest))
            for shard_report, shard_digest in zip(shard_reports, shard_digests, strict=True)
        ]
        local_root = staged_root(staging, root, only=_is_small)
        views = staged_views(parse_uri(root), local_root) if is_uri(root) else {}
        content = manifest.read_any(local_root).content
        staged_root(staging, root, only={file.path for file in content.files}.__contains__)
        family = family_of(content.family)
        result = join_shards(
            local_root,
            content,
            family,
            files,
            _listing(root, local_root),
            needs_source=source is not None,
            scratch=chosen_scratch(scratch),
        )
        conclude(
            local_root,
            family,
            result,
            seconds=monotonic() - began,
            report_file=None if report is None else staging.path(report),
            html_file=None if html is None else staging.path(html),
        )
        for place in filter(None, (report, html)):
            staging.publish_file(place, replace=True)
        if is_uri(root) and result.clean:
            publish_promoted(parse_uri(root), local_root, views)
    return result


def _is_small(name: str) -> bool:
    """Selects row tables, for the statistics of the report, and rejects. No array is read."""
    return name.endswith("_rows.parquet") or name.startswith(f"{REJECTS}/")


def _listing(root: str, local_root: Path) -> Listing:
    if is_uri(root):
        listed = listed_root(parse_uri(root))
        return {name: RootFile(bytes=entry.bytes, version=entry.version) for name, entry in listed.items()}
    paths = (path for folder in (*SPLITS, REJECTS) for path in files_below(local_root / folder))
    return {path.relative_to(local_root).as_posix(): RootFile(bytes=_size(path)) for path in paths}


def _size(path: Path) -> int:
    return (path.stat() if path.exists() else path.lstat()).st_size  # otherwise a broken link


artifact_metadata = report_artifacts
