"""Raw SYNTH → one shard of a source: a step of the pipeline, once per shard.

In: raw SYNTH at a place, the number of the shard and of all shards. Out: the shard at the place of the source, with the
same bytes as from `convert-synth --assignment contiguous`, and its inventory, which `assemble_source` joins.
Files are never overwritten: an existing file with the same bytes counts as written.
"""

from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

from spanloom.conversations.source.folder import MANIFEST_NAME
from spanloom.conversations.source.writer import ShardWriter
from spanloom.errors import ConflictError, SourceError
from spanloom.families.harmony.contract.profile import SYNTH_KD
from spanloom.families.harmony.convert.raw_files import RawPlace, Run, runs_of_shard
from spanloom.families.harmony.convert.synth import (
    FEW_VALUES,
    SHARD_SCHEMA,
    Conversion,
    RawFile,
    Skip,
    file_batches,
    output_row,
    skip_reason,
)
from spanloom.provenance import readable_json
from spanloom.report.progress import Progress
from spanloom.storage.claim import claim_root
from spanloom.storage.hub import pinned
from spanloom.storage.publishing import publish_file
from spanloom.storage.scratch import scratch_for
from spanloom.storage.staging import find, list_objects
from spanloom.storage.unchanged import check_unchanged
from spanloom.storage.uri import is_hub, is_uri, parse_uri
from spanloom.workers import OnProgress

ARTIFACT = "converted_shard_v1"


def convert_shard(
    *,
    files: dict[int, RawFile],
    runs: list[Run],
    shard: Path,
    conversion: Conversion,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Converts the rows of `runs` into the file `shard`. `files`: the files of the runs, by number.

    `on_progress` is called regularly with the rows read so far and the rows to read. Returns `rows_read`, `skipped` and
    the shard's `entry` in the manifest. Raises SourceError for an invalid file, ConflictError if `shard` exists with
    other bytes; then all files of this run are removed.
    """
    total, read = sum(run.rows for run in runs), 0
    skipped: Counter[Skip] = Counter()
    shard.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo:
        writer = ShardWriter(shard, SHARD_SCHEMA, undo, few_values=FEW_VALUES)
        for run in runs:
            skip, left = run.skip, run.rows
            for rows in file_batches(files[run.file], run.groups):
                chosen = rows[skip : skip + left]
                skip, left = max(skip - len(rows), 0), left - len(chosen)
                for row in chosen:
                    if reason := skip_reason(row):
                        skipped[reason] += 1
                    else:
                        writer.append(output_row(row, conversion))
                read += len(chosen)
                if on_progress is not None:
                    on_progress(read, total)
                if not left:
                    break
            check_unchanged(files[run.file].path, files[run.file].state)
        entry = writer.finish()
        undo.pop_all()  # it is complete: keep it
    return {
        "rows_read": read,
        "skipped": {reason.value: skipped[reason] for reason in Skip if skipped[reason]},
        "entry": entry,
    }


def run(
    *,
    raw: str,
    shard: int,
    out: str,
    inventory: str,
    conversion: Conversion,
    progress: Progress,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over paths or URIs. Only raw objects with rows of this shard are staged; of others the footer is read.

    A remote place is first claimed for this number of shards. Returns the inventory's content. Raises SpanloomError,
    before any object is staged, for an invalid shard number, for more shards than row groups, and for a place with
    another number of shards.
    """
    _check_number(out, conversion.shards)
    with scratch_for("convert-shard", [raw, shard, out, inventory], scratch) as staging:
        place = RawPlace(staging, raw, with_seed_text=conversion.with_seed_text)
        runs = runs_of_shard(place.footers, shard, conversion.shards)
        files = place.files([run.file for run in runs])
        for run in runs:
            if files[run.file].group_rows != place.footers[run.file].group_rows:
                raise SourceError(
                    "the file was replaced while the conversion began",
                    where=str(files[run.file].path),
                    remedy="convert data that is not being written",
                )
        if is_uri(out):
            claim_root(parse_uri(out), {"shards": conversion.shards}, "the place of the source")
        name = SYNTH_KD.source.shard_name(shard)
        path = staging.path(out) / name
        if is_uri(out):
            path.unlink(missing_ok=True)  # left by a run that was killed while it published
        with progress.stage("convert"), progress.counting("convert", "rows") as on_progress:
            made = convert_shard(files=files, runs=runs, shard=path, conversion=conversion, on_progress=on_progress)
        if is_uri(out):
            publish_file(path, parse_uri(out) / name)
        result = {
            "artifact": ARTIFACT,
            "shard": shard,
            "conversion": asdict(conversion),
            "spanloom": version("spanloom"),
            **({"place": pinned(raw)} if is_hub(raw) else {}),
            "raw": [
                {"path": footer.name, "rows": footer.rows, "bytes": footer.bytes, "version": footer.version}
                for footer in place.footers
            ],
            **made,
        }
        staging.create(inventory, readable_json(result))
    return result


def _check_number(out: str, shards: int) -> None:
    """Raises ConflictError if the place has shards or the manifest of a source with another number of shards."""
    there = shard_sizes(out).keys()
    wanted = {SYNTH_KD.source.shard_name(shard) for shard in range(shards)}
    place = f"{out.rstrip('/')}/{MANIFEST_NAME}"
    finished = wanted - there and (find(parse_uri(place)) is not None if is_uri(out) else Path(place).exists())
    if there - wanted or finished:
        raise ConflictError(
            f"a source with another number of shards than {shards} is at this place",
            where=out,
            remedy="remove it, or convert to another place",
        )


def shard_sizes(out: str) -> dict[str, int]:
    """Name → size in bytes of each shard that exists at the place of a source."""
    glob = SYNTH_KD.source.shard_glob
    if not is_uri(out):
        return {path.name: path.stat().st_size for path in Path(out).glob(glob)}
    uri = parse_uri(out)
    sizes = [(PurePosixPath(entry.uri.key).relative_to(uri.key), entry.bytes) for entry in list_objects(uri)]
    return {name.name: size for name, size in sizes if len(name.parts) == 1 and name.match(glob)}


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    skipped = sum(result["skipped"].values())
    counts = {"rows_read": result["rows_read"], "rows": result["entry"]["rows"], "skipped": skipped}
    return {
        "inventory": {"shard": result["shard"], **counts, "sha256": result["entry"]["sha256"]},
        "metrics": {**counts, "bytes": result["entry"]["bytes"]},
    }
