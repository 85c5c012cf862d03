"""Step tokenize-toolcalls: samples of one split → a token dataset with a loss mask, not validated yet.

In: a file of samples, the split, a chat template, a tokenizer. Out: the files under the dataset root, including
tokenizer, template and registries, and `manifest.pending.json`. See `spanloom.families.toolcalls.recipe`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from spanloom.building.options import RunOptions
from spanloom.building.shards.files import Running, make_dataset, shard_job
from spanloom.building.steps import run_shard, shard_metadata, shard_places
from spanloom.dataset.manifest import ListedFile, Manifest
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.root.made import published
from spanloom.dataset.root.places import made_at
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.recipe import (
    REGISTRIES_NAME,
    TEMPLATE_NAME,
    Ingredients,
    load_ingredients,
    recipe_of,
    useful_workers,
)
from spanloom.families.toolcalls.recipe import TokenizeRules as TokenizeRules
from spanloom.kubeflow import dataset_artifacts
from spanloom.provenance import library_versions, readable_json
from spanloom.report.progress import Mode, Progress
from spanloom.storage import sha256_file
from spanloom.storage.scratch import scratch_for


def tokenize_toolcalls(
    *,
    data: Path,
    split: Literal["harmful", "retain"],
    root: Path,
    work: Path,
    ingredients: Ingredients,
    template: Path,
    tools_dir: Path | None = None,
    shards: int = 1,
    options: RunOptions,
    progress: Progress,
    environment: Mapping[str, Any],
) -> Manifest | None:
    """Writes the token dataset of one split at `root` and returns its pending manifest. `work`: the folder of
    intermediates.

    Returns None and writes nothing if the file has no sample of the split. Files are created, never overwritten.
    Raises DuplicateIdError for a duplicate id, ToolCallError if no sample of the split has a mask.
    """
    recipe = recipe_of(
        data, split, ingredients, template=template, tools_dir=tools_dir, shards=shards, given=environment
    )
    samples = sum(shard.rows for shard in recipe.shards)
    if not samples:
        return None
    jobs = [shard_job(shard, shard.rows, work, options.max_rejects) for shard in recipe.shards]

    def check(records: Sequence[Mapping[str, Any]]) -> None:
        if any(record["rows"] for record in records):
            return
        rejected = sum((Counter(record["rejected"]) for record in records), Counter())
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(rejected.items()))
        raise ToolCallError(
            f"no {split} sample can be masked: {reasons}",
            where=str(data),
            remedy="`spanloom toolcalls audit` says what is wrong with template or samples",
        )

    return make_dataset(
        recipe,
        jobs,
        root,
        work,
        options,
        progress,
        Running(verb=f"tokenize {split}", workers=options.workers or useful_workers(samples), check=check),
        files=lambda: _publish_files(root, ingredients),
        environment={"libraries": library_versions("tokenizers", "Jinja2"), **environment},
    )


def _publish_files(root: Path, ingredients: Ingredients) -> tuple[ListedFile, ...]:
    """Publishes tokenizer, template and registries in the root, so that it can be read and checked on its own."""
    held = {
        TOKENIZER_NAME: ingredients.tokenizer.path.read_bytes(),
        TEMPLATE_NAME: ingredients.template.text.encode(),
        REGISTRIES_NAME: readable_json(dict(ingredients.registries.listed)),
    }
    return tuple(published(root, name, data) for name, data in held.items())


def run(
    *,
    data: str,
    split: Literal["harmful", "retain"],
    root: str,
    template: str,
    tokenizer: str,
    rules: TokenizeRules,
    tokenizer_out: str | None = None,
    shards: int = 1,
    max_rejects: str | None = None,
    on_duplicate: str = "error",
    workers: int | None = None,
    allow_unknown_sha: bool = False,
    shard: int | None = None,
    rendered: str | None = None,
    inventory: str | None = None,
    work: str | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Runs the step on paths or URIs. A remote root is claimed first. Raises ToolCallError if the split has no sample.

    `tokenizer_out`: the place to copy the tokenizer to, for later steps. With `shard`, makes and writes that shard
    alone: see `building.steps.run_shard`; returns its inventory, otherwise the pending manifest.
    """
    options = RunOptions(
        max_rejects=max_rejects,
        on_duplicate=on_duplicate,
        workers=workers,
        resume=resume,
        allow_unknown_sha=allow_unknown_sha,
    )
    options.check()
    progress = progress or Progress(mode=Mode.SILENT)
    places = shard_places(root, shard, rendered, inventory, work)
    environment = {"data": data, "root": root}
    with (
        scratch_for("tokenize-toolcalls", [data, root, template, tokenizer, shard], scratch) as staging,
        TemporaryDirectory(prefix="spanloom-") as kept,
    ):
        samples, template_file = staging.file(data), staging.file(template)
        loaded = load_ingredients(template_file, staging.file(tokenizer), rules)
        if tokenizer_out is not None:
            staging.bring_home(loaded.tokenizer.path, tokenizer_out)
        if shard is not None and places is not None:
            recipe = recipe_of(
                samples, split, loaded, template=template_file, tools_dir=None, shards=shards, given=environment
            )
            this = recipe.shards[shard]
            return run_shard(
                staging,
                recipe,
                shard_job(this, this.rows, Path(kept), max_rejects),
                shards,
                places,
                recipe.identity(),
                options,
                Running(verb=f"tokenize {split}", workers=workers or useful_workers(this.rows)),
                progress,
                source_bytes=samples.stat().st_size // shards,
                files=lambda local_root: _publish_files(local_root, loaded),
            )

        def make(folder: Path) -> Manifest:
            made = tokenize_toolcalls(
                data=samples,
                split=split,
                root=folder,
                work=Path(kept),
                ingredients=loaded,
                template=template_file,
                shards=shards,
                options=options,
                progress=progress,
                environment=environment,
            )
            if made is None:
                raise ToolCallError(f"there is no {split} sample", where=data, remedy="give a file of both splits")
            return made

        identity = {
            "config": loaded.config(split),
            "inputs": [sha256_file(samples)],
            "tokenizer_sha256": loaded.tokenizer.sha256,
        }
        return made_at(root, staging, lambda: identity, make)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if "entry" in result:
        return shard_metadata(result)
    return dataset_artifacts(result, tokenizer=("sha256",), harmful=result["content"]["config"]["harmful"])
