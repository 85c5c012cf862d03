"""Step 5: the inventories of all shards → one pending manifest.

In: the inventories, the split and the dataset root. Out: `manifest.pending.json` at the root. Only a validation without
findings promotes it to the manifest of a dataset.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spanloom.building.assembly import assemble, check_one_build
from spanloom.building.parts.stored import read_sidecar
from spanloom.dataset import manifest
from spanloom.dataset.root.places import pending_at
from spanloom.families.harmony.contract.caps import Caps
from spanloom.kubeflow import dataset_artifacts
from spanloom.provenance import require_git_sha
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
    counted = read_sidecar(split)
    check_one_build(sidecars, inventories, counted, split)
    return assemble(sidecars, counted, root, git_sha=git_sha, environment=environment)


def run(
    *, inventories: Sequence[str], split: str, root: str, allow_unknown_sha: bool = False, scratch: Path | None = None
) -> dict[str, Any]:
    """The step over paths or URIs. At a remote root a manifest with the same `content` counts as written."""
    with scratch_for("assemble-manifest", [*inventories, split, root], scratch) as staging:
        files = [staging.file(place) for place in inventories]
        split_file = staging.file(split)
        for file in files:
            Caps(**read_sidecar(file)["build"]["config"]["caps"]).check_root(root)

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
