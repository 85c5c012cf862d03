"""What containers run: one shard of a dataset, and the manifest of all shards.

In: a recipe, places as paths or URIs. Out: the parts of a shard at a work place, its files at the dataset root, a small
manifest of its parts and an inventory; then `manifest.pending.json`. A task that was killed goes on after the last pack
of parts that it had published.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from spanloom.building.assembly import assemble, check_one_build, files_of, made_of
from spanloom.building.options import RunOptions
from spanloom.building.parts.packs import IDS_NAME, pack_bytes
from spanloom.building.parts.stored import read_sidecar
from spanloom.building.parts.work import (
    Rendered,
    ShardWork,
    check_one_number,
    check_one_work,
    default_work,
    has_manifest,
    read_parts,
    staged,
)
from spanloom.building.recipe import Recipe, target_of
from spanloom.building.request import DatasetRequest
from spanloom.building.shards.files import (
    DECIDES_NOTHING,
    DatasetJob,
    Running,
    make_dataset,
    pooled,
    require_documents,
    write_files,
)
from spanloom.building.shards.ids import Ids, count_ids
from spanloom.building.shards.making import ShardJob, add_counts, make_shards, write_record
from spanloom.conversations.source.rejects import too_many_rejects
from spanloom.dataset.manifest import Manifest
from spanloom.dataset.root.made import published as published_file
from spanloom.dataset.root.places import made_at, pending_at, publish_data
from spanloom.errors import SpanloomError
from spanloom.kubeflow import dataset_artifacts, split_metrics
from spanloom.provenance import git_sha, require_git_sha
from spanloom.report.progress import Progress
from spanloom.storage.claim import claim_root
from spanloom.storage.scratch import Scratch, chosen_scratch, scratch_for
from spanloom.storage.temporaries import temporary_folder
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.workers import Counters


@dataclass(frozen=True, kw_only=True)
class StepTask(RunOptions):
    """How a step makes a dataset: all of it; or with `shard` that shard alone, which assemble-dataset joins.

    rendered, inventory   places for what the task of a shard hands on: the manifest of its parts, and its inventory
    work                  the place of its parts; None for `ROOT.work`
    """

    shard: int | None = None
    rendered: str | None = None
    inventory: str | None = None
    work: str | None = None

    def places(self) -> tuple[int, str, str]:
        """The shard, `rendered` and `inventory`. Raises SpanloomError if one is missing."""
        if self.shard is None or self.shard < 0 or self.rendered is None or self.inventory is None:
            raise SpanloomError(
                "a task for one shard needs its number and places for what it hands on",
                remedy="give --shard from 0 on, --rendered and --inventory",
            )
        return self.shard, self.rendered, self.inventory


def make_requested(
    staging: Scratch, request: DatasetRequest, root: str, task: StepTask, progress: Progress
) -> dict[str, Any]:
    """Makes a dataset at a path or a URI, which is claimed first. Returns the pending manifest; or makes one shard of
    it, and returns its inventory. Raises ConflictError if another build has claimed the root or the places, or a file
    exists with other bytes."""
    task.check()
    if task.shard is not None:
        with request.opened() as job:
            return run_shard(staging, request, job, root, task, progress)

    def make(folder: Path) -> Manifest:
        with temporary_folder("spanloom-") as kept, request.opened() as job:
            return make_dataset(job, folder, Path(kept), task, progress, carried=request.carried)

    return made_at(root, staging, lambda: request.identity, make)


def publish_parts(
    published: ShardWork,
    recipe: Recipe,
    job: ShardJob,
    shards: int,
    running: Running,
    progress: Progress,
    *,
    resume: bool,
) -> dict[str, Any]:
    """Makes the parts of a shard and publishes them. Returns its record, without what differs between runs."""
    counters = Counters(shards)
    rows = [0] * shards
    rows[job.shard.index] = job.rows
    published.begin()
    job = replace(job, rendered=published.parts / "rendered", ids=published.parts / "ids")
    with pooled(running, counters) as pool, progress.rendering(counters, rows, verb=running.verb):
        before = published.restore if resume else None
        ((job, summaries),) = make_shards(recipe, [job], pool, resume=resume, before=before, after=published.add)
    for notice in recipe.notices(add_counts({}, summaries)):
        progress.say(notice)
    whole = write_record(recipe, shards, job, summaries)
    del whole[DECIDES_NOTHING]
    return published.finish(whole)


def run_shard(
    staging: Scratch, request: DatasetRequest, made: DatasetJob, root: str, task: StepTask, progress: Progress
) -> dict[str, Any]:
    """Makes one shard and writes its files at the root; that of shard 0 also the files of no shard. Returns its
    inventory. Its parts are published at the work place, so that a task that was killed goes on after them."""
    number, rendered, inventory = task.places()
    recipe, place, identity = (
        made.recipe,
        task.work or default_work(root),
        {**request.identity, "shards": request.shards},
    )
    check_one_number(place, request.shards)
    size = pack_bytes(int(request.size().text_bytes) // request.shards)
    with temporary_folder("spanloom-") as kept:
        job = made.of_shard(number, Path(kept), task.max_rejects)
        parts = {**identity, "parts": dict(recipe.identity())}
        with ShardWork(staging, place, parts, number, recipe.form, limit=size) as published:
            known = has_manifest(staging, rendered, published.identity)
            whole = published.finished() if task.resume else None
            if whole is None or too_many_rejects(whole, task.max_rejects):
                running = made.running(task.workers, job.rows)
                whole = publish_parts(published, recipe, job, request.shards, running, progress, resume=task.resume)
            at = published.rendered(whole, dict(recipe.environment()))
            if not known:
                staging.create(rendered, at.as_json())
    target = target_of(recipe, lists_rejects=task.max_rejects is not None)
    record, ids = {**whole, DECIDES_NOTHING: at.given}, at.entry(IDS_NAME).as_dict()

    def write(folder: Path, place: Path) -> dict[str, Any]:
        carried = request.carried.items() if number == 0 else ()
        return write_files(
            target,
            record,
            ids,
            partial(read_parts, staging, at, whole),
            folder,
            place,
            resume=task.resume,
            files=[published_file(folder, name, content()) for name, content in carried],
            made_of=made_of(recipe, job, target),
        )

    return written_at(staging, root, inventory, identity, write)


def written_at(
    staging: Scratch,
    root: str,
    inventory: str,
    build: Mapping[str, Any],
    write: Callable[[Path, Path], dict[str, Any]],
) -> dict[str, Any]:
    """The inventory of the shard that `write` writes below a root, and into a file; published if these are remote.

    `build`: what decides the bytes below the root, equal for all shards and retries; a remote root is claimed with it.
    The inventory is written after all files.
    """
    if not is_uri(root):
        result = write(Path(root), staging.path(inventory))
        staging.publish_file(inventory)
        return result
    uri, local_root = parse_uri(root), staging.path(root)
    claim_root(uri, {"git_sha": git_sha(), **build})
    made = local_root.parent / "inventory.json"
    result = write(local_root, made)
    publish_data(files_of(result), local_root, uri)
    staging.bring_home(made, inventory)
    return result


def shard_metadata(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Kubeflow's metadata of an inventory."""
    entry = result["entry"]
    rejected = sum(entry["rejected"].values())
    return {
        "inventory": {
            "shard": entry["shard"],
            "rows_read": entry["rows_read"],
            "rejected": rejected,
            "files": sum(len(split["files"]) for split in entry["splits"].values()),
            "bytes": sum(file["bytes"] for split in entry["splits"].values() for file in split["files"]),
            **({"input_sha256": result["input"]["sha256"]} if "sha256" in result["input"] else {}),
        },
        "metrics": {"rows_read": entry["rows_read"], "rejected": rejected, **split_metrics(entry["splits"])},
    }


def run_assemble(
    *,
    rendered: Sequence[str],
    inventories: Sequence[str],
    root: str,
    on_duplicate: str = "error",
    allow_unknown_sha: bool = False,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Joins the inventories of all shards and writes the pending manifest at the root.

    `rendered`: the manifests of the parts of all shards, whose ids are searched for repeats; none if ids decide
    nothing. Raises DuplicateIdError, ArtifactError for shards of different builds. At a remote root a manifest with the
    same `content` counts as written.
    """
    made_by = require_git_sha(allow_unknown=allow_unknown_sha)
    with scratch_for("assemble-dataset", [*rendered, *inventories, root], scratch) as staging:
        files = [staging.file(place) for place in inventories]
        sidecars = [read_sidecar(file) for file in files]
        counted = None
        if sidecars and sidecars[0]["build"]["split"] is not None:
            shards = [Rendered.read(staging.file(place)) for place in rendered]
            if len(shards) != len(sidecars):
                raise SpanloomError(
                    f"{len(sidecars)} inventories are given, but {len(shards)} manifests of parts",
                    remedy="give --rendered and --inventory once for each shard, in order",
                )
            check_one_work(shards, rendered)
            rule, named = sidecars[0]["build"]["split"], sidecars[0]["build"]["ids"]
            ids = [
                Ids.of_file(path, shard, named["column"], named["named"])
                for path, shard in zip(staged(staging, shards, IDS_NAME), shards, strict=True)
            ]
            counted = {
                **rule,
                **count_ids(ids, rule["valid_fraction"], on_duplicate, scratch=chosen_scratch(scratch)),
            }
        check_one_build(sidecars, files, counted, Path(root))
        entries = [inventory["entry"] for inventory in sidecars]
        rows = [sum(split["sequences"] for split in entry["splits"].values()) for entry in entries]
        require_documents(
            lambda refused: SpanloomError(
                f"no document was made (refused: {refused})", where=root, remedy="repair the rows that were refused"
            )
        )([{"rows": number, "rejected": entry["rejected"]} for number, entry in zip(rows, entries, strict=True)])

        def pending(where: Path) -> dict[str, Any]:
            return assemble(sidecars, counted, where, git_sha=made_by, environment={"root": root}).as_dict()

        return pending_at(root, staging, pending)


def assembled_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Kubeflow's metadata of a pending manifest."""
    return dataset_artifacts(result)
