"""Step 5: one pending manifest out of the inventories of all shards.

In: the inventories and the dataset root. Out: `manifest.pending.json` at the root. It is no dataset yet: only a clean
validation promotes it.
"""

from pathlib import Path
from typing import Any

from spanloom import manifest
from spanloom.errors import ArtifactError
from spanloom.harmony import tokenizer
from spanloom.harmony.caps import Caps
from spanloom.harmony.config import ARRAY_DTYPES, FAMILY, dataset_config
from spanloom.harmony.rendered import read_sidecar
from spanloom.inventory import added, split_totals
from spanloom.provenance import environment_here, require_git_sha, sha256_json
from spanloom.split import SPLITS
from spanloom.supervision import SPAN_NAMES


def assemble_manifest(
    *,
    inventories: list[Path],
    root: Path,
    allow_unknown_sha: bool = False,
    environment: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Joins the inventory files (in shard order) and writes the pending manifest under `root`.

    `environment` adds to what is recorded of this run (paths as given, timings) and decides nothing.
    Returns the manifest. Raises ArtifactError when the inventories are not all of one build.
    """
    git_sha = require_git_sha(allow_unknown=allow_unknown_sha)
    shards = [read_sidecar(path) for path in inventories]
    _check_one_build(shards, inventories)
    first = shards[0]
    config = dataset_config(
        shards=first["shards"], caps=Caps(**first["caps"]), valid_fraction=first["split"]["valid_fraction"]
    )
    totals = {
        "rows_read": sum(shard["rows_read"] for shard in shards),
        "rejected": added(shard["rejected"] for shard in shards),
        "splits": {split: split_totals([shard["splits"][split] for shard in shards]) for split in SPLITS},
    }
    sequences = sum(counts["sequences"] for counts in totals["splits"].values())
    content = {
        "family": FAMILY,
        "git_sha": git_sha,
        "config": config,
        "config_sha256": sha256_json(config),
        "tokenizer": {
            "name": tokenizer.NAME,
            "sha256": first["tokenizer_sha256"],
            "vocab_size": tokenizer.VOCAB_SIZE,
            "eod": tokenizer.EOD,
        },
        "input": {**first["source"], "shards": [shard["input"] for shard in shards]},
        "split": {
            **first["split"],
            "realised_valid_fraction": totals["splits"]["valid"]["sequences"] / sequences if sequences else 0.0,
        },
        "renderer": {**first["renderer"], **added(shard["audit"] for shard in shards)},
        "alignment": first["alignment"],
        "arrays": ARRAY_DTYPES,
        "span_names": list(SPAN_NAMES),
        "totals": totals,
        "shards": [
            {name: shard[name] for name in ("shard", "rows_read", "rejected", "rejects_file", "splits")}
            for shard in shards
        ],
    }
    whole = {
        "schema_version": manifest.SCHEMA_VERSION,
        "content": content,
        "environment": environment_here(environment),
    }
    manifest.write_pending(root, whole)
    return whole


def _check_one_build(shards: list[dict[str, Any]], inventories: list[Path]) -> None:
    if not shards or [shard["shard"] for shard in shards] != list(range(shards[0]["shards"])):
        raise ArtifactError(
            f"inventories of shards {[shard['shard'] for shard in shards]} are given, "
            f"expected 0 … {shards[0]['shards'] - 1 if shards else '?'} in order",
            where=", ".join(map(str, inventories)),
        )
    for name in ("shards", "source", "tokenizer_sha256", "renderer", "caps", "split", "alignment"):
        for shard, path in zip(shards, inventories, strict=True):
            if shard[name] != shards[0][name]:
                raise ArtifactError(
                    f"the inventories are of different builds: {name} is {shard[name]} here, "
                    f"{shards[0][name]} in shard 00",
                    where=str(path),
                    remedy="make all shards again with the same options",
                )
