"""Validation in two steps: the checks of each shard where its files are, then the global checks, from the reports.

In: first, a shard's own files; then the reports of all shards, the digests of ids and of documents' tokens, and a
listing of the root.
Out: first, a report of the shard; then the same `Report` that one process would make of the whole dataset.

Both steps run the code that validation of a whole dataset runs where it uses several processes (`processes`). Checks by
shard go through `CheckRun.each`: the first step checks its own shard there, and records the report of each call; the
second step only returns the recorded reports. Beyond that, only row tables and the files that belong to no shard are
read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Content, ListedFile
from spanloom.dataset.root.inventory import AT_ONCE, file_fault, unlisted
from spanloom.dataset.root.places import staged_root
from spanloom.dataset.rows.digests import DigestRuns
from spanloom.dataset.validate.checks import DatasetCheck, GivenSource, joined_checks
from spanloom.dataset.validate.content import check_shape
from spanloom.dataset.validate.processes import (
    AGAIN,
    CONTENTS_AT_ONCE,
    JoinedRun,
    Parts,
    checked_group,
    counted,
    processes_for,
    sequences_in,
)
from spanloom.errors import ArtifactError, SpanloomError
from spanloom.findings import Finding, Report
from spanloom.machine import usable_cpus
from spanloom.megatron.official import require_megatron
from spanloom.provenance import sha256_json
from spanloom.storage import read_json, sha256_file, write_atomically
from spanloom.storage.scratch import Scratch
from spanloom.storage.uri import is_uri
from spanloom.workers import OnProgress

ARTIFACT = "shard_validation_v3"


@dataclass(frozen=True, kw_only=True)
class RootFile:
    """A file in a listing of a dataset root. `version`: generation or ETag, if the store reports one."""

    bytes: int
    version: str | None = None


Listing = Mapping[str, RootFile]
"""The files of a root, by their paths relative to it."""


def files_of_shard(content: Content, number: int) -> list[ListedFile]:
    """The files of one shard in the manifest. Raises SpanloomError if there is no such shard."""
    shard = next((shard for shard in content.shards if shard.shard == number), None)
    if shard is None:
        raise SpanloomError(f"there is no shard {number}: the manifest has {len(content.shards)}")
    files = [file for counts in shard.splits.values() for file in counts.files]
    return files if shard.rejects_file is None else [*files, shard.rejects_file]


def stage_shards(scratch: Scratch, root: str, content: Content, numbers: Iterable[int]) -> None:
    """Stages these shards of the dataset at a URI, and the files of no shard. Does nothing for a local root."""
    if is_uri(root):
        files = [*content.files, *(file for number in sorted(numbers) for file in files_of_shard(content, number))]
        staged_root(scratch, root, only={file.path for file in files}.__contains__)


# --- One shard --------------------------------------------------------------------------------------------------------


def validate_shard(
    root: Path,
    content: Content,
    family: DatasetFamily,
    number: int,
    *,
    digests_file: Path,
    source: GivenSource | None = None,
    versions: Mapping[str, str] | None = None,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
    scratch: Path | None = None,
) -> tuple[Report, dict[str, Any]]:
    """Checks one shard of the dataset at `root`. Reads only the manifest and this shard's files there.

    Writes `digests_file`: the digests of the shard's ids, then those of its documents' tokens. `source.deep`: the value
    for the whole dataset. `versions`: of the shard's staged files, if the store reports them. Returns the findings, and
    the report for `join_shards` as a JSON value.
    """
    require_megatron()
    files = files_of_shard(content, number)
    with ThreadPoolExecutor(min(workers or usable_cpus(), AT_ONCE)) as threads:
        faults = [fault for fault in threads.map(partial(file_fault, root), files) if fault is not None]
    report, beyond_files = Report(), Report()
    report.ran("inventory", len(files))
    report.add(faults)
    shape = list(check_shape(content, family))
    report.add(shape)
    parts: Parts = []
    ids = 0
    if shape:
        write_atomically(digests_file, b"")
    else:
        check = DatasetCheck(root=root, content=content, family=family, source=source, scratch=scratch)
        on_checked = counted(on_progress, sequences_in(content, (number,)))
        processes = processes_for(check, (number,), workers)
        of_shards, ids = checked_group(check, (number,), digests_file, processes, on_checked)
        parts = of_shards[number]
        for part, _ in parts:
            beyond_files.include(part)
    report.include(beyond_files)
    return report, {
        "artifact": ARTIFACT,
        "shard": number,
        "content_sha256": sha256_json(content.as_dict()),
        "deep": None if source is None else source.deep,
        "clean": report.clean,
        "files": [asdict(fault) for fault in faults],
        "versions": dict(versions or {}),
        "parts": [
            {"result": result if isinstance(result, bool) else None, **_recorded(part)} for part, result in parts
        ],
        "ids": ids,
        "digests_sha256": sha256_file(digests_file),
    }


def _recorded(report: Report) -> dict[str, Any]:
    return {
        "checked": report.checked,
        "found": report.found,
        "errors": report.errors,
        "findings": [asdict(finding) for finding in report.findings],
    }


# --- All shards -------------------------------------------------------------------------------------------------------


def join_shards(
    root: Path,
    content: Content,
    family: DatasetFamily,
    shards: Sequence[tuple[Path, Path]],
    listing: Listing,
    *,
    needs_source: bool = False,
    scratch: Path | None = None,
) -> Report:
    """The report of the whole dataset, joined from the reports of its shards.

    `shards`: report and digests file of each, in order. Reads the row tables in `root` if ids repeat, and the files
    that belong to no shard; nothing of the source. `listing`: the current files of the root.
    Raises ArtifactError unless the reports are of all shards of this dataset, with the same options, and with
    `needs_source` of a comparison with the source.
    """
    parts = [_read(report, number, content) for number, (report, _) in enumerate(shards)]
    if len(parts) != len(content.shards):
        raise ArtifactError(
            f"{len(parts)} reports are given, the dataset has {len(content.shards)} shards", remedy=AGAIN
        )
    if len({report["deep"] for report in parts}) > 1:
        message = "the shards were validated with different --deep, or not all with --source"
        raise ArtifactError(message, remedy=AGAIN)
    if needs_source and parts[0]["deep"] is None:
        raise ArtifactError("the shards were not compared with the source", remedy=f"{AGAIN}, with --source")
    with DigestRuns(0, scratch) as digests, DigestRuns(0, scratch, CONTENTS_AT_ONCE) as contents:
        for (_, file), report in zip(shards, parts, strict=True):
            if sha256_file(file) != report["digests_sha256"]:
                raise ArtifactError("these digests are not those of the report", where=str(file), remedy=AGAIN)
            digests.add_file(file, last=report["ids"])
            contents.add_file(file, first=report["ids"])
        named_source = None if parts[0]["deep"] is None else GivenSource(place=root, at_hand=())
        check = DatasetCheck(root=root, content=content, family=family, source=named_source, scratch=scratch)
        run = JoinedRun([[_part(recorded) for recorded in report["parts"]] for report in parts])
        return joined_checks(check, run, digests, contents, _inventory(root, content, parts, listing))


def _part(recorded: Mapping[str, Any]) -> tuple[Report, bool | None]:
    report = Report(checked=recorded["checked"], found=recorded["found"], errors=recorded["errors"])
    report.findings = [Finding(**finding) for finding in recorded["findings"]]
    return report, recorded["result"]


def _read(path: Path, number: int, content: Content) -> dict[str, Any]:
    stored = read_json(path, ArtifactError, "the report of a shard", AGAIN)
    wanted = {"artifact": ARTIFACT, "shard": number, "content_sha256": sha256_json(content.as_dict())}
    for name, value in wanted.items():
        if not isinstance(stored, dict) or stored.get(name) != value:
            stated = stored.get(name) if isinstance(stored, dict) else None
            message = f"this is not the report of shard {number} of this dataset: {name} is {stated!r}, not {value!r}"
            raise ArtifactError(message, where=str(path), remedy=AGAIN)
    return dict(stored)


def _inventory(
    root: Path, content: Content, shards: Sequence[Mapping[str, Any]], listing: Listing
) -> Iterator[Finding]:
    """The faults of the files: those in the shards' reports, and those of the current listing."""
    faults = {fault["file"]: Finding(**fault) for shard in shards for fault in shard["files"]}
    versions = {name: version for shard in shards for name, version in shard["versions"].items()}
    checked = {file.path for number in range(len(shards)) for file in files_of_shard(content, number)}
    for file in content.listed_files():
        if file.path in checked:
            fault = faults.get(file.path) or _listed_fault(file, listing, versions)
        else:
            fault = file_fault(root, file)
        if fault is not None:
            yield fault
    yield from unlisted({file.path for file in content.listed_files()}, content.totals.splits, listing)


def _listed_fault(file: ListedFile, listing: Listing, versions: Mapping[str, str]) -> Finding | None:
    def fault(message: str) -> Finding:
        return Finding(check="inventory", message=message, file=file.path)

    stored = listing.get(file.path)
    if stored is None:
        return fault("the file is missing")
    if stored.bytes != file.bytes:
        return fault(f"{stored.bytes} bytes, the manifest says {file.bytes}")
    if versions.get(file.path, stored.version) != stored.version:
        return fault("the object was replaced after its shard was validated")
    return None
