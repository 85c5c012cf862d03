"""A dataset's files held against its manifest, and what its shards add up to.

In: the root and the manifest's `content`; counts of shards. Out: findings, for files that are missing, changed, or
nobody's; totals.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from spanloom.findings import Finding
from spanloom.provenance import sha256_json
from spanloom.storage import sha256_file

AT_ONCE = 4
"""Files hashed or shards checked side by side, at most: more cores than that wait for the disk."""


def listed_files(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every file that the manifest names, as `{path, bytes, sha256}`."""
    for shard in content["shards"]:
        for counts in shard["splits"].values():
            yield from counts["files"]
        if shard["rejects_file"]:
            yield shard["rejects_file"]


def added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Counts by name, name by name."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)


def split_totals(counts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the shards of one split, as a manifest has them, add up to."""
    return {
        "sequences": sum(count["sequences"] for count in counts),
        "tokens": sum(count["tokens"] for count in counts),
        "span_tokens": added(count["span_tokens"] for count in counts),
        "longest": max(count["longest"] for count in counts),
        "fitting": added(count["fitting"] for count in counts),
    }


def first_damage(root: Path, content: dict[str, Any]) -> Finding | None:
    """The first thing that is wrong with the files, or None: whether a finished dataset still stands as it was made."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return next(check_inventory(root, content, threads), None)


def check_inventory(root: Path, content: dict[str, Any], threads: Executor) -> Iterator[Finding]:
    """Sizes and hashes of the listed files, files that are not listed, sums that do not add up.

    The files are hashed in `threads` (hashing holds no GIL), from now on and not from the first finding asked for.
    """
    listed = {file["path"]: file for file in listed_files(content)}
    return _faults(root, content, set(listed), threads.map(partial(_fault, root), listed.values()))


def _faults(
    root: Path, content: dict[str, Any], listed: set[str], of_files: Iterable[Finding | None]
) -> Iterator[Finding]:
    yield from filter(None, of_files)
    for folder in (*content["totals"]["splits"], "rejects"):
        for path in sorted((root / folder).glob("*")):
            # Folders are let be: Megatron keeps its index cache in one beside the data when not told otherwise.
            if (
                path.is_file()
                and (name := path.relative_to(root).as_posix()) not in listed
                and not path.name.startswith(".")
            ):
                yield Finding(check="inventory", message="the manifest does not list this file", file=name)
    yield from _check_sums(content)


def _fault(root: Path, file: dict[str, Any]) -> Finding | None:
    path, name = root / file["path"], file["path"]
    if not path.is_file():
        return Finding(check="inventory", message="the file is missing", file=name)
    if (size := path.stat().st_size) != file["bytes"]:
        return Finding(check="inventory", message=f"{size} bytes, the manifest says {file['bytes']}", file=name)
    if (found := sha256_file(path)) != file["sha256"]:
        return Finding(check="inventory", message=f"sha256 {found}, the manifest says {file['sha256']}", file=name)
    return None


def _check_sums(content: dict[str, Any]) -> Iterator[Finding]:
    if sha256_json(content["config"]) != content["config_sha256"]:
        yield Finding(check="manifest", message="config_sha256 is not the hash of config")
    for split, totals in content["totals"]["splits"].items():
        for count in ("sequences", "tokens"):
            added = sum(shard["splits"][split][count] for shard in content["shards"])
            if added != totals[count]:
                yield Finding(
                    check="manifest", message=f"{count} is {totals[count]}, the shards add up to {added}", split=split
                )
    for name, total in content["totals"].get("packing", {}).items():
        if (summed := sum(shard["packing"].get(name, 0) for shard in content["shards"])) != total:
            yield Finding(check="manifest", message=f"{name} is {total}, the shards add up to {summed}")
    for shard in content["shards"]:
        yield from _check_packing(shard) if "packing" in shard else _check_rows(shard)


def _check_rows(shard: dict[str, Any]) -> Iterator[Finding]:
    """Each row of the source is one document, or rejected."""
    written = sum(counts["sequences"] for counts in shard["splits"].values())
    rejected = sum(shard["rejected"].values())
    if written + rejected != shard["rows_read"]:
        yield Finding(
            check="manifest",
            message=f"{shard['rows_read']} rows read, but {written} written and {rejected} rejected",
            shard=shard["shard"],
        )


def _check_packing(shard: dict[str, Any]) -> Iterator[Finding]:
    """The tokens of the rows, copies and padding are in blocks, or were dropped or given up, and nothing else is."""
    packing = shard["packing"]
    written = sum(counts["tokens"] for counts in shard["splits"].values())
    came = packing["tokens_in"] + packing["injected_tokens"] + packing["padding_tokens"]
    went = written + packing["dropped_tokens"] + packing["tokens_given_up"] + packing["tail_tokens"]
    if came != went:
        yield Finding(
            check="manifest",
            message=f"{came} tokens came in, were injected or padded, but {went} were written, dropped or given up",
            shard=shard["shard"],
        )
