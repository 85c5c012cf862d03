"""Step 5: the inventories of all shards → one pending manifest.

In: the inventories, the split and the dataset root. Out: `manifest.pending.json` at the root. Only a validation without
findings promotes it to the manifest of a dataset.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spanloom.building.assembly import assemble, check_one_build
from spanloom.building.parts.stored import read_sidecar
from spanloom.dataset.root.places import pending_at
from spanloom.families.harmony.contract.caps import Caps
from spanloom.kubeflow import dataset_artifacts
from spanloom.provenance import require_git_sha
from spanloom.storage.scratch import scratch_for


def run(
    *, inventories: Sequence[str], split: str, root: str, allow_unknown_sha: bool = False, scratch: Path | None = None
) -> dict[str, Any]:
    """The step over paths or URIs. `inventories`: in shard order. `split`: the file of assemble-split, which has looked
    for repeated ids. At a remote root a manifest with the same `content` counts as written.

    Returns the manifest. Raises ArtifactError if the inventories and the split are not all from one build.
    """
    with scratch_for("assemble-manifest", [*inventories, split, root], scratch) as staging:
        files, split_file = [staging.file(place) for place in inventories], staging.file(split)
        sidecars = [read_sidecar(file) for file in files]
        for sidecar in sidecars:
            Caps(**sidecar["build"]["config"]["caps"]).check_root(root)

        def assembled(where: Path) -> dict[str, Any]:
            git_sha, counted = require_git_sha(allow_unknown=allow_unknown_sha), read_sidecar(split_file)
            check_one_build(sidecars, files, counted, split_file)
            return assemble(sidecars, counted, where, git_sha=git_sha, environment={"root": root}).as_dict()

        return pending_at(root, staging, assembled)


artifact_metadata = dataset_artifacts
