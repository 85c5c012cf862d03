"""A teacher, step 1, once per task: the shards of a dataset that are its own → their signals.

In: the root of a dataset, a model's folder; the task and the number of tasks. Out: the arrays of the signals, published
where those of all tasks go, and an inventory, for validate-teacher. Task i of N scores the shards whose number modulo N
is i. Of a dataset at a URI only they are staged, with the shard of the canary.

Until it is done, a task works in a folder of its own below the signals, `.tasks/00-of-04`, as `score` does: a task that
is started again goes on behind its last part.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spanloom.dataset import manifest
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.root.lock import check_apart
from spanloom.dataset.root.places import staged_root
from spanloom.dataset.validate.by_shard import stage_shards
from spanloom.errors import OptionError
from spanloom.provenance import readable_json
from spanloom.report.progress import Progress
from spanloom.storage.publishing import Upload, publish_files
from spanloom.storage.scratch import Scratch, scratch_for
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.teacher.join import inventory_of
from spanloom.teacher.places import begun_signals, keeping_parts, task_place
from spanloom.teacher.score import Scoring, score
from spanloom.teacher.sources.chosen import chosen_teacher
from spanloom.teacher.sources.options import TeacherOptions


def run(
    *,
    root: str,
    out: str,
    inventory: str,
    shard: int,
    shards: int,
    model: str,
    top_k: int,
    spans: tuple[str, ...],
    teacher: Callable[[Path], TeacherOptions],
    family_of: Callable[[str], DatasetFamily],
    progress: Progress,
    max_rejects: str | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step on paths and URIs. Returns the inventory.

    shard, shards  the number of this task, and how many there are
    teacher        the local folder of the model → the options of the teacher
    family_of      family name of a manifest → the family's functions
    max_rejects    how many documents of a shard may have no signals, see `Scoring`

    Raises OptionError for an invalid number, and as `score` does.
    """
    if not 0 <= shard < shards:
        raise OptionError(f"there is no task {shard} of {shards}", remedy="tasks are numbered from 0")
    scoring = Scoring(k=top_k, spans=spans or None, max_rejects=max_rejects)
    with scratch_for("score-teacher", [root, out, inventory, shard, shards], scratch) as staging:
        dataset = staged_root(staging, root, only=lambda name: False)  # noqa: ARG005  # the manifest alone
        content = manifest.read(dataset).content
        own = [each.shard for each in content.shards if each.shard % shards == shard]
        staged = {*own, *(number for _, number in content.filled()[:1])}  # the canary is in the first
        stage_shards(staging, root, content, staged)
        if not is_uri(root) and not is_uri(out):
            check_apart(dataset, Path(out))
        place = task_place(out, shard, shards)
        folder = begun_signals(staging, place)
        with progress.stage("load", "the teacher"):
            places = [each for each in content.filled() if each[1] in staged]
            options = teacher(staging.folder(model))
            chosen = chosen_teacher(dataset, content, family_of(content.family), options, top_k, places)
        with progress.stage("score"), progress.counting("score", "labels") as on_progress:
            score(
                dataset,
                folder,
                chosen,
                scoring,
                keep=keeping_parts(staging, place),
                named=root,
                shards=own,
                on_progress=on_progress,
            )
        made = inventory_of(folder)
        _publish(staging, folder, out, made)
        staging.replace(inventory, readable_json(made))
    return made


def _publish(staging: Scratch, folder: Path, out: str, made: dict[str, Any]) -> None:
    """Puts the arrays where those of all tasks are. Those that an earlier try has put there are not in the folder."""
    shards = [each for split in made["content"]["splits"].values() for each in split["shards"]]
    listed = [file for each in shards for file in each["files"]]
    if is_uri(out):
        publish_files([Upload(path=folder / file["path"], uri=parse_uri(out) / file["path"]) for file in listed])
        return
    for file in listed:
        target = staging.path(out) / file["path"]
        if (folder / file["path"]).is_file():
            target.parent.mkdir(exist_ok=True)
            (folder / file["path"]).replace(target)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    splits = result["content"]["splits"].values()
    counts = {name: sum(split[name] for split in splits) for name in ("documents", "positions", "without")}
    return {"inventory": counts, "metrics": counts}
