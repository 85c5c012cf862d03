"""Step 5: the inventories of all shards → one pending manifest.

In: the inventories, the split and the dataset root. Out: `manifest.pending.json` at the root. Only a validation without
findings promotes it to the manifest of a dataset.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spanloom.dataset import manifest
from spanloom.dataset.root.inventory import add_up
from spanloom.dataset.root.places import pending_at
from spanloom.errors import ArtifactError
from spanloom.families.harmony import tokenizer
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.config import ARRAY_DTYPES, dataset_config
from spanloom.families.harmony.contract.history import rules_of
from spanloom.families.harmony.contract.profile import profile_of_family
from spanloom.families.harmony.render.artifact import read_sidecar
from spanloom.kubeflow import dataset_artifacts
from spanloom.provenance import environment_here, require_git_sha, sha256_json
from spanloom.split import VALID
from spanloom.storage.scratch import scratch_for


def assemble_manifest(
    *,
    inventories: list[Path],
    split: Path,
    root: Path,
    allow_unknown_sha: bool = False,
    environment: dict[str, Any] | None = None,
) -> manifest.Manifest:
    """Joins the inventory files (in shard order) and writes the pending manifest under `root`. `split`: the file of
    assemble-split, which has looked for repeated ids.

    `environment`: further records of this run, such as timings. Its keys override the source and tokenizer that the
    shards recorded; it does not affect the content.
    Returns the manifest. Raises ArtifactError if the inventories and the split are not all from one build.
    """
    git_sha = require_git_sha(allow_unknown=allow_unknown_sha)
    sidecars = [read_sidecar(path) for path in inventories]
    _check_one_build(sidecars, inventories)
    first, of_split = sidecars[0], read_sidecar(split)
    _check_split(of_split, sidecars, split)
    profile = profile_of_family(first["family"], first["source"]["schema_version"])
    config = dataset_config(
        profile,
        shards=first["shards"],
        caps=Caps(**first["caps"]),
        valid_fraction=first["split"]["valid_fraction"],
        rules=rules_of(first["rules"], profile) if profile.cuts else None,
    )
    names = ["shard", "rows_read", "rejected", "rejects_file", "splits", *(["cutting"] if profile.cuts else [])]
    shards = tuple(
        manifest.ShardEntry.model_validate({name: inventory[name] for name in names}) for inventory in sidecars
    )
    totals = add_up(shards)
    realised = totals.splits[VALID].sequences / totals.sequences if totals.sequences else 0.0
    content = manifest.Content(
        family=profile.family,
        git_sha=git_sha,
        config=config,
        config_sha256=sha256_json(config),
        tokenizer=manifest.TokenizerEntry(
            name=tokenizer.NAME,
            sha256=first["tokenizer_sha256"],
            vocab_size=tokenizer.VOCAB_SIZE,
            eod=tokenizer.EOD,
        ),
        input=manifest.Input(
            **first["source"],
            shards=tuple(manifest.InputShard.model_validate(inventory["input"]) for inventory in sidecars),
        ),
        split=manifest.SplitRule(
            **first["split"], realised_valid_fraction=realised, repeated_rows=of_split["repeated_rows"]
        ),
        renderer=manifest.RendererEntry(
            **first["renderer"],
            fallback_rows=sum(inventory["audit"]["fallback_rows"] for inventory in sidecars),
            audited_rows=sum(inventory["audit"]["audited_rows"] for inventory in sidecars),
        ),
        alignment=first["alignment"],
        arrays=ARRAY_DTYPES,
        span_names=profile.span_names,
        totals=totals,
        shards=shards,
    )
    whole = manifest.new_manifest(content, environment_here({**_given(sidecars), **(environment or {})}))
    manifest.write_pending(root, whole.as_dict())
    return whole


def _given(shards: list[dict[str, Any]]) -> dict[str, Any]:
    """Source and tokenizer that the shards were given: each one place, or all different places in shard order."""
    places: dict[str, list[str]] = {}
    for shard in shards:
        for name, place in shard.get("environment", {}).items():  # absent in inventories of an older release
            if place not in places.setdefault(name, []):
                places[name].append(place)
    return {name: values[0] if len(values) == 1 else values for name, values in places.items()}


def _check_one_build(shards: list[dict[str, Any]], inventories: list[Path]) -> None:
    if not shards or [shard["shard"] for shard in shards] != list(range(shards[0]["shards"])):
        raise ArtifactError(
            f"inventories of shards {[shard['shard'] for shard in shards]} are given, "
            f"expected 0 … {shards[0]['shards'] - 1 if shards else '?'} in order",
            where=", ".join(map(str, inventories)),
        )
    for name in ("family", "shards", "source", "tokenizer_sha256", "renderer", "caps", "rules", "split", "alignment"):
        for shard, path in zip(shards, inventories, strict=True):
            if shard[name] != shards[0][name]:
                raise ArtifactError(
                    f"the inventories are of different builds: {name} is {shard[name]} here, "
                    f"{shards[0][name]} in shard 00",
                    where=str(path),
                    remedy="make all shards again with the same options",
                )


def _check_split(split: dict[str, Any], shards: list[dict[str, Any]], path: Path) -> None:
    """Checks that assemble-split has read the ids of these shards, with the same split rule."""
    counted = [
        {
            "shard": shard["shard"],
            "rows_read": shard["rows_read"],
            "rows": sum(of_split["sequences"] for of_split in shard["splits"].values()),
            "valid": shard["splits"][VALID]["sequences"],
        }
        for shard in shards
    ]
    if counted != split["shards"] or any(split[name] != value for name, value in shards[0]["split"].items()):
        raise ArtifactError(
            "the split is not of the same rows, or not by the same rule, as the inventories",
            where=str(path),
            remedy="run assemble-split again with the same --valid-fraction",
        )


def run(
    *, inventories: Sequence[str], split: str, root: str, allow_unknown_sha: bool = False, scratch: Path | None = None
) -> dict[str, Any]:
    """The step over paths or URIs. At a remote root a manifest with the same `content` counts as written."""
    with scratch_for("assemble-manifest", [*inventories, split, root], scratch) as staging:
        files = [staging.file(place) for place in inventories]
        split_file = staging.file(split)
        for file in files:
            Caps(**read_sidecar(file)["caps"]).check_root(root)

        def assemble(where: Path) -> dict[str, Any]:
            return assemble_manifest(
                inventories=files,
                split=split_file,
                root=where,
                allow_unknown_sha=allow_unknown_sha,
                environment={"root": root},
            ).as_dict()

        return pending_at(root, staging, assemble)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return dataset_artifacts(result)
