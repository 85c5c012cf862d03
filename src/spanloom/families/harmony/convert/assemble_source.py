"""The manifest of a source whose shards were converted one by one: a step of the pipeline.

In: the inventories of all shards, in order, and the place of the source. Out: `manifest.json` there, as
`convert-synth --assignment contiguous` writes it. No shard is read: each must exist with the size in its inventory.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spanloom.building.parts.stored import read_sidecar
from spanloom.conversations.source.folder import MANIFEST_NAME
from spanloom.errors import ArtifactError, ConflictError
from spanloom.families.harmony.convert.convert_shard import ARTIFACT, shard_sizes
from spanloom.families.harmony.convert.synth import Conversion, Skip, source_manifest
from spanloom.provenance import readable_json
from spanloom.storage.scratch import scratch_for

_REMEDY = "run convert-shard again for all shards, with the same raw data and options"
_OF_ALL = ("conversion", "spanloom", "place", "raw")


def assemble_source(inventories: Sequence[dict[str, Any]], where: Sequence[str]) -> dict[str, Any]:
    """The manifest of the source with these shards. `where`: the places of the inventories, for messages.

    Raises ArtifactError unless there is one inventory per shard, in order, all from one conversion.
    """
    wrong = next(
        (place for part, place in zip(inventories, where, strict=True) if part.get("artifact") != ARTIFACT), None
    )
    if wrong is not None or not inventories:
        raise ArtifactError("this is no inventory of convert-shard", where=wrong, remedy=_REMEDY)
    first = inventories[0]
    conversion = Conversion(**first["conversion"])
    for index, (part, place) in enumerate(zip(inventories, where, strict=True)):
        for name in _OF_ALL:
            if part.get(name) != first.get(name):
                what = f"the inventories are of different conversions: {name} is not that of the first"
                raise ArtifactError(what, where=place, remedy=_REMEDY)
        if part["shard"] != index:
            raise ArtifactError(
                f"this is the inventory of shard {part['shard']}, not {index}", where=place, remedy=_REMEDY
            )
    if len(inventories) != conversion.shards:
        what = f"there are {len(inventories)} inventories of {conversion.shards} shards"
        raise ArtifactError(what, where=where[-1], remedy=_REMEDY)
    total = sum(file["rows"] for file in first["raw"])
    if (read := sum(part["rows_read"] for part in inventories)) != total:
        raise ArtifactError(f"{read} rows were read of {total}", where=where[0], remedy=_REMEDY)
    skipped: Counter[Skip] = Counter()
    for part in inventories:
        skipped.update({Skip(reason): count for reason, count in part["skipped"].items()})
    return source_manifest(
        conversion,
        [{name: file[name] for name in ("path", "rows", "bytes")} for file in first["raw"]],
        total,
        None,
        skipped,
        [part["entry"] for part in inventories],
        first.get("place"),
    )


def run(*, inventories: Sequence[str], out: str, scratch: Path | None = None) -> dict[str, Any]:
    """The step over paths or URIs. Returns the manifest.

    Raises ArtifactError if a shard differs from its inventory, ConflictError if `out` has shards of another conversion
    or another manifest.
    """
    with scratch_for("assemble-source", [*inventories, out], scratch) as staging:
        files = [staging.file(place) for place in inventories]
        read = [read_sidecar(file) for file in files]
        manifest = assemble_source(read, inventories)
        _check_shards({shard["path"]: shard["bytes"] for shard in manifest["storage"]["shards"]}, out)
        staging.create(f"{out.rstrip('/')}/{MANIFEST_NAME}", readable_json(manifest))
    return manifest


def _check_shards(wanted: dict[str, int], out: str) -> None:
    sizes = shard_sizes(out)
    for name, size in wanted.items():
        if sizes.get(name) != size:
            what = f"the shard {name} has {sizes[name]} bytes, not {size}" if name in sizes else f"there is no {name}"
            raise ArtifactError(what, where=out, remedy=_REMEDY)
    if extra := sorted(sizes.keys() - wanted.keys()):
        what = f"there is a shard of another conversion: {extra[0]}"
        raise ConflictError(what, where=out, remedy="remove it, or convert to another place")


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    made = result["conversion"]
    counts = {"rows_read": made["rows_read"], "rows": made["rows_written"], "skipped": sum(made["skipped"].values())}
    return {"metrics": {**counts, "shards": len(result["storage"]["shards"])}}
