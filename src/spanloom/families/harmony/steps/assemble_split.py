"""Step 3: the global part of the split. Is any id repeated, and how many documents are valid?

In: the ids of every shard. Out: `split.json`, which the manifest needs. See `spanloom.building.shards.ids`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spanloom.building.parts.packs import IDS_NAME
from spanloom.building.parts.stored import IDS_JSON, read_sidecar
from spanloom.building.parts.work import Rendered, check_one_work, staged
from spanloom.building.shards.ids import Ids, count_ids, write_split
from spanloom.dataset.rows.digests import AT_ONCE
from spanloom.errors import ArtifactError
from spanloom.families.harmony import defaults
from spanloom.families.harmony.contract.config import split_decided
from spanloom.families.harmony.contract.profile import profile_of_family
from spanloom.storage.scratch import chosen_scratch, scratch_for


def assemble_split(
    *,
    ids: Sequence[Path],
    split: Path,
    valid_fraction: float = defaults.VALID_FRACTION,
    on_duplicate: str = defaults.ON_DUPLICATE,
    scratch: Path | None = None,
    at_once: int = AT_ONCE,
) -> dict[str, Any]:
    """Reads the ids in the folders `ids` (in shard order) and writes the file `split`. Returns its content. See
    `count_ids`."""
    families = [read_sidecar(directory / IDS_JSON)["family"] for directory in ids]
    form = profile_of_family(families[0]).form
    shards = [Ids.open(directory, index, form.split_column, form.id_column) for index, directory in enumerate(ids)]
    return _split_of(families, shards, split, valid_fraction, on_duplicate, scratch=scratch, at_once=at_once)


def _split_of(
    families: Sequence[str],
    shards: Sequence[Ids],
    split: Path,
    valid_fraction: float,
    on_duplicate: str,
    *,
    scratch: Path | None = None,
    at_once: int = AT_ONCE,
) -> dict[str, Any]:
    if len({*families}) != 1:
        raise ArtifactError(f"ids of one family are wanted, not of {sorted({*families})}")
    decided = split_decided(profile_of_family(families[0]), valid_fraction)
    counted = count_ids(shards, valid_fraction, on_duplicate, scratch=scratch, at_once=at_once)
    return write_split(split, decided, counted)


def run(
    *,
    rendered: Sequence[str],
    split: str,
    valid_fraction: float = defaults.VALID_FRACTION,
    on_duplicate: str = defaults.ON_DUPLICATE,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over paths or URIs. `rendered`: the manifests of all shards, in order; only the ids are staged from the
    work place. Raises ArtifactError for manifests of different sources or options, before any ids are staged."""
    with scratch_for("assemble-split", [*rendered, split], scratch) as staging:
        shards = [Rendered.read(staging.file(place)) for place in rendered]
        check_one_work(shards, rendered)
        files = staged(staging, shards, IDS_NAME)
        families = [shard.family for shard in shards]
        form = profile_of_family(families[0]).form
        result = _split_of(
            families,
            [
                Ids.of_file(path, shard, form.split_column, form.id_column)
                for path, shard in zip(files, shards, strict=True)
            ],
            staging.path(split),
            valid_fraction,
            on_duplicate,
            scratch=chosen_scratch(scratch),
        )
        staging.publish_file(split)
    return result


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    counts = {
        "rows": sum(shard["rows"] for shard in result["shards"]),
        "valid_rows": sum(shard["valid"] for shard in result["shards"]),
        "realised_valid_fraction": result["realised_valid_fraction"],
        "repeated_rows": result["repeated_rows"],
    }
    return {
        "split": {"rule": result["rule"], "valid_fraction": result["valid_fraction"], **counts},
        "metrics": counts,
    }
