"""Chess, step 2: one pending manifest from the inventories of all shards.

In: the inventories and the root. Out: `manifest.pending.json` at the root. The prepared games are not finished until a
clean validation promotes this manifest.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spanloom.dataset.root.places import pending_at
from spanloom.errors import ArtifactError
from spanloom.families.chess import manifest
from spanloom.families.chess.build import INVENTORY_SCHEMA, assemble
from spanloom.families.chess.reading.prepared import KINDS
from spanloom.kubeflow import identity_of
from spanloom.provenance import git_sha, require_git_sha
from spanloom.storage import read_json
from spanloom.storage.scratch import scratch_for


def _read_all(inventories: list[Path]) -> list[dict[str, Any]]:
    """The inventories, given in the order of the shards. Raises ArtifactError unless they are complete and from one run
    of this code."""
    contents = [_read(path) for path in inventories]
    if not contents or [each["shard"] for each in contents] != list(range(contents[0]["shards"])):
        raise ArtifactError(
            f"inventories of shards {[each['shard'] for each in contents]} are given, "
            f"expected 0 … {contents[0]['shards'] - 1 if contents else '?'} in order",
            where=", ".join(map(str, inventories)),
        )
    expected = {**{name: contents[0][name] for name in ("shards", "config", "files")}, "git_sha": git_sha()}
    for each, path in zip(contents, inventories, strict=True):
        for name, value in expected.items():
            if each[name] != value:
                raise ArtifactError(
                    f"the inventories are of different runs: {name} of shard {each['shard']:02d} differs",
                    where=str(path),
                    remedy="prepare all shards again with the same files, options and code",
                )
    return contents


def _read(path: Path) -> dict[str, Any]:
    remedy = "give what prepare-chess wrote"
    inventory = read_json(path, ArtifactError, "the inventory", remedy)
    if isinstance(inventory, dict) and inventory.get("schema_version") == INVENTORY_SCHEMA:
        return inventory
    raise ArtifactError("this is no inventory of prepared games", where=str(path), remedy=remedy)


def run(
    *, inventories: Sequence[str], root: str, allow_unknown_sha: bool = False, scratch: Path | None = None
) -> dict[str, Any]:
    """Runs the step on paths or URIs. An existing remote manifest with the same `content` is accepted."""
    with scratch_for("assemble-chess", [*inventories, root], scratch) as staging:
        files = [staging.file(place) for place in inventories]

        def pending(folder: Path) -> dict[str, Any]:
            require_git_sha(allow_unknown=allow_unknown_sha)
            contents = _read_all(files)
            return assemble(
                folder,
                [prepared for each in contents for prepared in each["prepared"]],
                valid_fraction=contents[0]["config"]["valid_fraction"],
                environment={"root": root},
            )

        return pending_at(root, staging, pending, manifest.check)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    content = result["content"]
    counts: dict[str, int] = {}
    for kind in KINDS:
        totals = content["totals"][kind]
        counts[f"{kind}_rows_read"] = totals["rows_read"]
        counts[f"{kind}_rejected"] = sum(totals["rejected"].values())
        for split, sums in totals["splits"].items():
            counts |= {f"{split}_{kind}": sums["items"], f"{split}_{kind}_positions": sums["positions"]}
    return {"dataset": {**identity_of(result), **counts}, "metrics": counts}
