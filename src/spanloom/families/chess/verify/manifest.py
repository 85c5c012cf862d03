"""Checks the manifest of prepared games against itself and against the constants of the family.

In: a manifest's `content`. Out: findings. No file is read: `games` and `copies` check the counts against the files. The
code is independent of the code that writes manifests; only its constants are shared.
"""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from spanloom.dataset.validate.content import check_stated, wrong
from spanloom.families.chess import manifest
from spanloom.families.chess.reading.prepared import ARRAYS, KINDS, array_path, rejects_path
from spanloom.families.chess.reading.source import BAD_FEN, BAD_VARIATIONS, NO_PLY, UNKNOWN_PLAYED
from spanloom.families.chess.reading.tables import Kind
from spanloom.findings import Finding
from spanloom.provenance import sha256_json
from spanloom.split import SPLITS

REASONS = {"games": {BAD_FEN, UNKNOWN_PLAYED, NO_PLY}, "thinking": {BAD_FEN, BAD_VARIATIONS}}
_COUNTS = ("rows_read", "null_rows", "best_missing", "best_unknown")


def check_content(content: dict[str, Any]) -> Iterator[Finding]:
    """Yields findings for values that differ from constants, or contradict other values or the counts."""
    if sha256_json(content["config"]) != content["config_sha256"]:
        yield wrong("config_sha256 is not the hash of config")
    fraction = content["split"]["valid_fraction"]
    yield from check_stated(content["config"], {"valid_fraction": fraction}, "config")
    threshold = str(int(Decimal(str(fraction)) * 2**64))
    expected = {"rule": manifest.SPLIT_RULE, "valid_fraction": fraction, "threshold": threshold}
    yield from check_stated(content["split"], expected, "split")
    yield from check_stated(content["vocabulary"], manifest.recorded_vocabulary(), "vocabulary")
    yield from check_stated(content["arrays"], ARRAYS, "arrays")
    for section in ("input", "totals"):
        if set(content[section]) != set(KINDS):
            yield wrong(f"{section} is of {', '.join(sorted(content[section]))}, not of {' and '.join(KINDS)}")
    numbered = [(shard["kind"], shard["shard"]) for shard in content["shards"]]
    for kind in KINDS:
        shards = [shard for shard in content["shards"] if shard["kind"] == kind]
        if [shard["shard"] for shard in shards] != list(range(len(shards))):
            yield wrong(f"the {kind} shards are not numbered from 0 on")
        inputs = [(file["path"], file["rows"]) for file in content["input"][kind]]
        names = [name for name, _ in inputs]
        if inputs != [(shard["source"], shard["rows_read"]) for shard in shards]:
            yield wrong(f"the {kind} shards are not those of the input")
        if names != sorted(set(names)) or any("/" in name or not name.endswith(".parquet") for name in names):
            yield wrong(f"the input of {kind} must list files *.parquet sorted by name")
        yield from check_stated(content["totals"][kind], _totals(shards), f"totals.{kind}")
    if numbered != sorted(numbered, key=lambda each: KINDS.index(each[0])):
        yield wrong("the shards of thinking rows do not follow those of games")
    for shard in content["shards"]:
        yield from _check_shard(shard)


def _totals(shards: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums over shards."""
    rejected: Counter[str] = Counter()
    splits: dict[str, Counter[str]] = {}
    for shard in shards:
        rejected.update(shard["rejected"])
        for split, counts in shard["splits"].items():
            splits.setdefault(split, Counter()).update(items=counts["items"], positions=counts["positions"])
    return {
        **{name: sum(shard[name] for shard in shards) for name in _COUNTS},
        "rejected": dict(rejected),
        "splits": {split: dict(counts) for split, counts in splits.items()},
    }


def _check_shard(shard: dict[str, Any]) -> Iterator[Finding]:
    kind: Kind = shard["kind"]
    number, splits, rejected = shard["shard"], shard["splits"], shard["rejected"]
    place = f"{kind} shard {number}"
    for split, counts in splits.items():
        if split not in SPLITS:
            yield wrong(f"{place} has a split {split!r}")
        wanted = [array_path(Path(), split, kind, number, name).as_posix() for name in (*ARRAYS[kind], "ids")]
        if [file["path"] for file in counts["files"]] != wanted:
            yield wrong(f"the files of {place} in {split} are not the arrays of {kind} and their ids, in this order")
        if set(counts) != {"items", "positions", "files"} or counts["items"] < 1:
            yield wrong(f"{place} in {split} counts {', '.join(counts)}, with {counts['items']} items")
    if not REASONS[kind] >= set(rejected) or 0 in rejected.values():
        yield wrong(f"{place} has left out {rejected}")
    wanted_rejects = rejects_path(Path(), kind, number).as_posix() if rejected else None
    if (shard["rejects_file"] or {"path": None})["path"] != wanted_rejects:
        yield wrong(f"the rejects_file of {place} is not {wanted_rejects}")
    items, positions = (sum(counts[name] for counts in splits.values()) for name in ("items", "positions"))
    left_out = sum(rejected.values())
    if kind == "thinking":
        if unknown := [name for name in _COUNTS[1:] if shard[name]]:
            yield wrong(f"{place} has {', '.join(unknown)}, which must be 0 for thinking rows")
        if shard["rows_read"] != items + left_out:
            yield wrong(f"{place} has {items} rows and left {left_out} out, rows_read is {shard['rows_read']}")
        return
    rest = shard["rows_read"] - shard["null_rows"] - positions
    if rest < left_out or (rest and not left_out):
        yield wrong(f"{place} has {positions} plies, {left_out} games left out, rows_read is {shard['rows_read']}")
