"""Validation in two steps: the checks of each shard where its files are, then the global checks, from the reports.

In: first, a shard's own files; then the reports of all shards, the digests of ids and of documents' tokens, and a
listing of the root.
Out: first, a report of the shard; then the same `Report` that one process would make of the whole dataset.

Both steps, and validation in one process, run the same code, `check_beyond_files`. Its checks by shard go through
`CheckRun.each`: the first step checks its own shard there, and records the report of each call; the second step only
returns the recorded reports. Beyond that, only row tables and the files that belong to no shard are read.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Content, ListedFile, ShardEntry
from spanloom.dataset.root.inventory import AT_ONCE, file_fault, unlisted
from spanloom.dataset.root.places import staged_root
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.validate.content import check_shape
from spanloom.dataset.validate.dataset import CONTENTS_AT_ONCE, GivenSource, check_beyond_files, joined_checks
from spanloom.dataset.validate.disk_documents import token_digests
from spanloom.errors import ArtifactError, SpanloomError
from spanloom.findings import Finding, Report
from spanloom.machine import usable_cpus
from spanloom.megatron.official import require_megatron
from spanloom.provenance import sha256_json
from spanloom.storage import read_json, sha256_file
from spanloom.storage.scratch import Scratch
from spanloom.storage.uri import is_uri
from spanloom.workers import OnProgress

ARTIFACT = "shard_validation_v3"
_AGAIN = "run validate-shard of all shards again"

T = TypeVar("T")


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


class _ShardRun:
    """A `CheckRun` that checks one shard, and records the report of each check in `parts`."""

    def __init__(self, shard: ShardEntry, contents: DigestRuns, on_progress: OnProgress | None) -> None:
        self.parts: list[tuple[Report, bool | None]] = []
        self._shard, self._contents, self._on_progress = shard, contents, on_progress
        self._sequences = sum(counts.sequences for counts in shard.splits.values())
        self._checked = 0

    def each(self, report: Report, shards: Sequence[ShardEntry], check: Callable[[Report, ShardEntry], T]) -> list[T]:
        own = Report()
        result = check(own, self._shard)
        report.include(own)
        self.parts.append((own, result if isinstance(result, bool) else None))
        nothing = cast(T, None)
        return [result if shard is self._shard else nothing for shard in shards]

    def go_on(self) -> None:
        """Never raises: there is only one thread, which an interruption ends."""

    def checked(self, tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> Digests:
        digests = token_digests(tokens, lengths)
        self._contents.add(digests)
        self._checked += lengths.size
        if self._on_progress:
            self._on_progress(self._checked, self._sequences)
        return digests


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
    parts: list[tuple[Report, bool | None]] = []
    shard = next(shard for shard in content.shards if shard.shard == number)
    documents = sum(counts.sequences for counts in shard.splits.values())
    with DigestRuns(documents, scratch) as digests, DigestRuns(documents, scratch, CONTENTS_AT_ONCE) as contents:
        if not shape:
            run = _ShardRun(shard, contents, on_progress)
            check_beyond_files(Report(), root, content, family, run, digests, source)
            parts = run.parts
            for part, _ in parts:
                beyond_files.include(part)
        digests_file.parent.mkdir(parents=True, exist_ok=True)
        with digests_file.open("wb") as stream:
            ids = digests.write(stream)
            contents.write(stream)
    report.include(beyond_files)
    return report, {
        "artifact": ARTIFACT,
        "shard": number,
        "content_sha256": sha256_json(content.as_dict()),
        "deep": None if source is None else source.deep,
        "clean": report.clean,
        "files": [asdict(fault) for fault in faults],
        "versions": dict(versions or {}),
        "parts": [{"result": result, **_recorded(part)} for part, result in parts],
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


class _JoinRun:
    """A `CheckRun` that returns the recorded reports of all shards, without checks."""

    def __init__(self, shards: Sequence[Mapping[str, Any]]) -> None:
        self._parts = [list(shard["parts"]) for shard in shards]
        self._calls = 0

    def each(self, report: Report, shards: Sequence[ShardEntry], check: Callable[[Report, ShardEntry], T]) -> list[T]:  # noqa: ARG002  # as `CheckRun` has it
        results = []
        for shard, parts in zip(shards, self._parts, strict=True):
            if self._calls >= len(parts):
                raise ArtifactError(f"the report of shard {shard.shard} lacks a check", remedy=_AGAIN)
            part = parts[self._calls]
            part_report = Report(checked=part["checked"], found=part["found"], errors=part["errors"])
            part_report.findings = [Finding(**finding) for finding in part["findings"]]
            report.include(part_report)
            results.append(part["result"])
        self._calls += 1
        return results

    def go_on(self) -> None:
        """Never raises: nothing here takes long."""

    def checked(self, tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]) -> Digests:
        """Never called: no document is checked here."""
        return token_digests(tokens, lengths)


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
            f"{len(parts)} reports are given, the dataset has {len(content.shards)} shards", remedy=_AGAIN
        )
    if len({report["deep"] for report in parts}) > 1:
        message = "the shards were validated with different --deep, or not all with --source"
        raise ArtifactError(message, remedy=_AGAIN)
    if needs_source and parts[0]["deep"] is None:
        raise ArtifactError("the shards were not compared with the source", remedy=f"{_AGAIN}, with --source")
    with DigestRuns(0, scratch) as digests, DigestRuns(0, scratch, CONTENTS_AT_ONCE) as contents:
        for (_, file), report in zip(shards, parts, strict=True):
            if sha256_file(file) != report["digests_sha256"]:
                raise ArtifactError("these digests are not those of the report", where=str(file), remedy=_AGAIN)
            digests.add_file(file, last=report["ids"])
            contents.add_file(file, first=report["ids"])
        named_source = None if parts[0]["deep"] is None else GivenSource(place=root, at_hand=())
        inventory = _inventory(root, content, parts, listing)
        return joined_checks(root, content, family, _JoinRun(parts), digests, contents, inventory, named_source)


def _read(path: Path, number: int, content: Content) -> dict[str, Any]:
    stored = read_json(path, ArtifactError, "the report of a shard", _AGAIN)
    wanted = {"artifact": ARTIFACT, "shard": number, "content_sha256": sha256_json(content.as_dict())}
    for name, value in wanted.items():
        if not isinstance(stored, dict) or stored.get(name) != value:
            stated = stored.get(name) if isinstance(stored, dict) else None
            message = f"this is not the report of shard {number} of this dataset: {name} is {stated!r}, not {value!r}"
            raise ArtifactError(message, where=str(path), remedy=_AGAIN)
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
