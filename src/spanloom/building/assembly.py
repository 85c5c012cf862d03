"""The files of all shards → one pending manifest.

In: the inventory of each shard, the counts of ids. Out: `manifest.pending.json` at the root. Only a validation without
findings promotes it to the manifest of a dataset.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spanloom.building.parts.stored import files_stand, read_sidecar
from spanloom.building.recipe import DatasetForm, Recipe, Target
from spanloom.building.shards.making import ShardJob, build_key
from spanloom.dataset import manifest
from spanloom.dataset.manifest import ListedFile, Manifest, ShardEntry, ShardSplit
from spanloom.dataset.root.inventory import add_up
from spanloom.errors import ArtifactError
from spanloom.provenance import environment_here, readable_json, sha256_json
from spanloom.split import VALID
from spanloom.storage import write_atomically
from spanloom.supervision import ALIGNMENT

INVENTORY_ARTIFACT = "shard_inventory_v2"


def build_facts(
    form: DatasetForm,
    *,
    config: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    source: Mapping[str, Any],
    split: Mapping[str, Any] | None,
    renderer: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What the manifest says of all shards alike, as JSON. `tokenizer`, `renderer`: entries of the manifest, the latter
    without counts; `source`: the input without its files; `split`: see `ids.split_decided`, None if ids decide nothing.
    """
    return {
        "family": form.family,
        "config": dict(config),
        "tokenizer": dict(tokenizer),
        "source": dict(source),
        "split": split and dict(split),
        "renderer": renderer and dict(renderer),
        "alignment": ALIGNMENT,
        "arrays": dict(form.layout.arrays),
        "span_names": list(form.layout.span_names),
        "ids": {"column": form.split_column, "named": form.id_column},
    }


def made_of(recipe: Recipe, job: ShardJob, target: Target) -> str:
    """The hash of all that decides the files of a shard, known before it is made. Not the number of shards, nor the
    rest of the source: a shard of a source that grew has the same hash."""
    return sha256_json(
        {
            "build": build_key(recipe),
            "shard": job.shard.index,
            "input": dict(recipe.input_of(job.shard)),
            "rows": job.rows,
            "tokens": job.token_budget,
            "rejects": target.lists_rejects,
        }
    )


def write_inventory(
    path: Path,
    key: str,
    build: Mapping[str, Any],
    record: Mapping[str, Any],
    splits: Mapping[str, ShardSplit],
    rejects_file: ListedFile | None,
    files: Sequence[ListedFile] = (),
    made_of: str | None = None,
) -> dict[str, Any]:
    """Writes the inventory of a shard and returns it. `key`: decides its bytes; `build`: see `build_facts`; `record`:
    the record of the shard, see `making.write_record`; `files`: files of no shard that its task has written;
    `made_of`: see the function."""
    counted = {name: record[name] for name in ("cutting", "packing") if name in record}
    inventory = {
        "artifact": INVENTORY_ARTIFACT,
        "key": key,
        "made_of": made_of,
        "shard": record["shard"],
        "shards": record["shards"],
        "build": dict(build),
        "environment": record.get("environment", {}),
        "input": record["input"],
        "audit": record.get("audit"),
        "files": [file.model_dump(mode="json") for file in files],
        "entry": {
            "shard": record["shard"],
            "rows_read": record["rows_read"],
            "rejected": record["rejected"],
            "rejects_file": rejects_file and rejects_file.model_dump(mode="json"),
            "splits": {name: split.model_dump(mode="json") for name, split in splits.items()},
            **counted,
        },
    }
    write_atomically(path, readable_json(inventory))
    return inventory


def standing_inventory(path: Path, root: Path, key: str) -> dict[str, Any] | None:
    """The inventory that an earlier run wrote with this key, if all files in it exist unchanged below `root`."""
    if not path.is_file():
        return None
    written = read_sidecar(path)
    if written.get("key") != key:
        return None
    return written if files_stand(root, {file.path: file.sha256 for file in files_of(written)}) else None


def files_of(inventory: Mapping[str, Any]) -> Iterator[ListedFile]:
    """All files that the task of a shard has written."""
    yield from map(ListedFile.model_validate, inventory["files"])
    entry = inventory["entry"]
    for split in entry["splits"].values():
        yield from map(ListedFile.model_validate, split["files"])
    if entry["rejects_file"]:
        yield ListedFile.model_validate(entry["rejects_file"])


def assemble(
    inventories: Sequence[Mapping[str, Any]],
    counted: Mapping[str, Any] | None,
    root: Path,
    *,
    git_sha: str,
    files: Sequence[ListedFile] = (),
    environment: Mapping[str, Any] | None = None,
) -> Manifest:
    """Joins the inventories, in shard order, and writes the pending manifest under `root`. Returns it.

    `counted`: the result of `ids.count_ids` over these shards, None if ids decide nothing. `files`: those that belong
    to no shard. `environment`: further records of this run, such as timings; they override the places that the shards
    recorded and do not affect the content. Check the inventories with `check_one_build` first.
    """
    build = inventories[0]["build"]
    entries = tuple(ShardEntry.model_validate(inventory["entry"]) for inventory in inventories)
    totals = add_up(entries)
    optional: dict[str, Any] = {}
    if build["split"] is not None and counted is not None:
        realised = totals.splits[VALID].sequences / totals.sequences if totals.sequences else 0.0
        repeated = counted["repeated_rows"]
        optional["split"] = manifest.SplitRule(
            **build["split"], realised_valid_fraction=realised, repeated_rows=repeated
        )
    if build["renderer"] is not None:
        audits = [inventory["audit"] for inventory in inventories]
        optional["renderer"] = manifest.RendererEntry(
            **build["renderer"],
            fallback_rows=sum(audit["fallback_rows"] for audit in audits),
            audited_rows=sum(audit["audited_rows"] for audit in audits),
        )
    listed = [ListedFile.model_validate(file) for inventory in inventories for file in inventory["files"]]
    if files or listed:
        optional["files"] = (*files, *listed)
    content = manifest.Content(
        family=build["family"],
        git_sha=git_sha,
        config=build["config"],
        config_sha256=sha256_json(build["config"]),
        tokenizer=manifest.TokenizerEntry(**build["tokenizer"]),
        input=manifest.Input(
            **build["source"],
            shards=tuple(map(manifest.InputShard.model_validate, _inputs(inventories))),
        ),
        alignment=build["alignment"],
        arrays=build["arrays"],
        span_names=tuple(build["span_names"]),
        totals=totals,
        shards=entries,
        **optional,
    )
    run = {
        **_places(inventories),
        "shards": [{"made_of": inventory["made_of"], "audit": inventory["audit"]} for inventory in inventories],
        **(environment or {}),
    }
    whole = manifest.new_manifest(content, environment_here(run))
    manifest.write_pending(root, whole.as_dict())
    return whole


def _inputs(inventories: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The files of the source, each once: several shards may be made of the same ones."""
    listed = set()
    for inventory in inventories:
        given = inventory["input"]
        for file in given.get("files", [given]):
            if file["path"] not in listed:
                listed.add(file["path"])
                yield file


def _places(inventories: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Places that the shards were given, such as the source: each one place, or all different places in shard order."""
    places: dict[str, list[str]] = {}
    for inventory in inventories:
        for name, place in inventory["environment"].items():
            if place not in places.setdefault(name, []):
                places[name].append(place)
    return {name: values[0] if len(values) == 1 else values for name, values in places.items()}


def check_one_build(
    inventories: Sequence[Mapping[str, Any]], places: Sequence[Path], counted: Mapping[str, Any] | None, split: Path
) -> None:
    """Raises ArtifactError unless these are the inventories of all shards, in order, of one build, and `counted`, the
    content of the file `split`, is of the same rows with the same rule."""
    shards = inventories[0]["shards"] if inventories else 0
    if not inventories or [inventory["shard"] for inventory in inventories] != list(range(shards)):
        raise ArtifactError(
            f"inventories of shards {[inventory['shard'] for inventory in inventories]} are given, "
            f"expected 0 … {shards - 1 if inventories else '?'} in order",
            where=", ".join(map(str, places)),
        )
    first = inventories[0]
    for inventory, path in zip(inventories, places, strict=True):
        this = {"shards": inventory["shards"], **inventory["build"]}
        for name, value in {"shards": shards, **first["build"]}.items():
            if this.get(name) != value:
                raise ArtifactError(
                    f"the inventories are of different builds: {name} is {this.get(name)} here, {value} in shard 00",
                    where=str(path),
                    remedy="make all shards again with the same options",
                )
    if counted is not None:
        _check_split(counted, inventories, split)


def _check_split(counted: Mapping[str, Any], inventories: Sequence[Mapping[str, Any]], path: Path) -> None:
    rows = [
        {
            "shard": entry["shard"],
            "rows_read": entry["rows_read"],
            "rows": sum(split["sequences"] for split in entry["splits"].values()),
            "valid": entry["splits"][VALID]["sequences"],
        }
        for entry in (inventory["entry"] for inventory in inventories)
    ]
    rule = inventories[0]["build"]["split"]
    if rows != counted["shards"] or any(counted[name] != value for name, value in rule.items()):
        raise ArtifactError(
            "the split is not of the same rows, or not by the same rule, as the inventories",
            where=str(path),
            remedy="run assemble-split again with the same --valid-fraction",
        )
