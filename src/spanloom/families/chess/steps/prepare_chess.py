"""Chess, step 1, once per shard: its share of the Parquet files → their arrays under the root, and an inventory.

In: a folder of games, one of thinking rows, or both; the shard and the number of shards. Out: the files of the prepared
games, and the shard's inventory, from which the manifest is assembled. File i of a folder, by name, goes to shard
i mod the number of shards; a shard without files has an empty inventory. One file is held in memory at a time.
"""

import shutil
from pathlib import Path
from typing import Any

from spanloom.dataset.manifest import files_of
from spanloom.dataset.root.lock import check_apart
from spanloom.dataset.root.places import publish_data
from spanloom.families.chess.build import INVENTORY_SCHEMA, config_of, prepare_shard
from spanloom.families.chess.errors import ChessError, NoFilesError
from spanloom.families.chess.options import PrepareShard
from spanloom.families.chess.places import found_files, stage_sources
from spanloom.families.chess.reading.prepared import KINDS
from spanloom.options.keywords import by_keywords
from spanloom.provenance import readable_json, require_git_sha
from spanloom.split import valid_threshold
from spanloom.storage import write_atomically
from spanloom.storage.claim import claim_root
from spanloom.storage.scratch import scratch_for
from spanloom.storage.uri import is_uri, parse_uri


@by_keywords(PrepareShard)
def run(given: PrepareShard) -> dict[str, Any]:
    """Runs the step on paths or URIs and returns the inventory. Only this shard's files are staged.

    A remote root is first claimed for this run. Files are created, never overwritten: an existing file with the same
    bytes is accepted. Raises ChessError for an invalid shard number, NoFilesError without a folder, SourceError for an
    unreadable file, ConflictError if an existing file differs or another run has claimed the root.
    """
    shard, shards, root = given.shard, given.shards, given.root
    if not 0 <= shard < shards:
        raise ChessError(f"there is no shard {shard} of {shards}", remedy="shards are numbered from 0")
    valid_threshold(given.valid_fraction)  # raises for an invalid fraction
    places = {kind: place for kind, place in zip(KINDS, (given.games, given.thinking), strict=True) if place}
    if not places:
        raise NoFilesError("neither a folder of games nor one of thinking rows was given")
    with scratch_for("prepare-chess", [*places.values(), root, given.inventory, shard], given.scratch) as staging:
        files = {kind: found_files(staging, place) for kind, place in places.items()}
        mine = {kind: [file for file in listed if file.number % shards == shard] for kind, listed in files.items()}
        of_run = {
            "shards": shards,
            "git_sha": require_git_sha(allow_unknown=given.allow_unknown_sha),
            "config": config_of(given.valid_fraction),
            "files": {kind: [[file.name, file.bytes] for file in listed] for kind, listed in files.items()},
        }
        local_root = staging.path(root)
        if is_uri(root):
            claim_root(parse_uri(root), of_run)
            shutil.rmtree(local_root, ignore_errors=True)  # remains of a killed run, perhaps with other files
        for kind, place in places.items():
            if not is_uri(place) and not is_uri(root):
                check_apart(Path(place), local_root)
            stage_sources(mine[kind], place)
        prepared = [
            prepare_shard(file.path, kind, file.number, local_root, given)
            for kind, listed in mine.items()
            for file in listed
        ]
        made = {"schema_version": INVENTORY_SCHEMA, "shard": shard, **of_run, "prepared": prepared}
        if is_uri(root):
            written = files_of({"shards": [each["shard"] for each in prepared]})
            publish_data(written, local_root, parse_uri(root))
        write_atomically(staging.path(given.inventory), readable_json(made))
        staging.publish_file(given.inventory)
    return made


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {"files": len(result["prepared"])}
    for kind in KINDS:
        of_kind = [each["shard"] for each in result["prepared"] if each["shard"]["kind"] == kind]
        counts[f"{kind}_rows_read"] = sum(shard["rows_read"] for shard in of_kind)
        counts[f"{kind}_items"] = sum(counts["items"] for shard in of_kind for counts in shard["splits"].values())
        counts[f"{kind}_rejected"] = sum(sum(shard["rejected"].values()) for shard in of_kind)
    return {"inventory": {"shard": result["shard"], "shards": result["shards"], **counts}, "metrics": counts}
