"""Step tokenize-conversations: conversations and a model's folder → a token dataset, not validated yet.

In: a source folder, a model's folder, `ModelRules`. Out: the files under the dataset root, including the model's files,
`probe.json` and `manifest.pending.json`. A conversation with a run that is neither proven nor declared is refused,
counted by class and listed in `rejects/`. The id of a conversation decides the split of all its documents.

The size of a batch of rows does not depend on the workers. Finished batches are kept in the folder of intermediates, so
that a stopped build can be resumed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from spanloom.building.options import RunOptions
from spanloom.building.shards.files import Running, make_dataset, shard_job
from spanloom.building.steps import run_shard, shard_metadata, shard_places
from spanloom.conversations.source.caps import RowCaps, check_capped_root
from spanloom.conversations.source.folder import Source, open_source
from spanloom.conversations.source.places import staged_source
from spanloom.dataset.manifest import ListedFile, Manifest
from spanloom.dataset.root.layout import MODEL_FOLDER
from spanloom.dataset.root.made import published
from spanloom.dataset.root.places import made_at
from spanloom.families.models import defaults
from spanloom.families.models.documents.rules import MODEL_FILES, PROBE_NAME, Ingredients, ModelRules, load_ingredients
from spanloom.families.models.errors import ModelError
from spanloom.families.models.places import held_model, staged_model
from spanloom.families.models.probe.conversations import probed_conversations
from spanloom.families.models.probe.result import as_json, probe
from spanloom.families.models.recipe import config_of, recipe_of, useful_workers
from spanloom.kubeflow import dataset_artifacts
from spanloom.provenance import readable_json
from spanloom.report.progress import Mode, Progress
from spanloom.storage.scratch import scratch_for


def tokenize_conversations(
    *,
    source: Source,
    ingredients: Ingredients,
    root: Path,
    work: Path,
    caps: RowCaps,
    options: RunOptions,
    progress: Progress,
    environment: Mapping[str, Any],
) -> Manifest:
    """Writes the token dataset at `root` and returns its pending manifest. `work`: the folder of intermediates.

    Files are never overwritten; an existing file with the same bytes counts as written. Raises RejectedRowError if more
    conversations are refused than allowed, DuplicateIdError for a repeated id unless such are kept, ModelError if no
    document is made, SourceError, ConflictError.
    """
    files = _publish_files(root, ingredients)  # the probe too, before any conversation is proven
    counts = caps.rows_read([shard.rows for shard in source.shards])
    jobs = [
        shard_job(shard, rows, work, options.max_rejects) for shard, rows in zip(source.shards, counts, strict=True)
    ]

    def check(records: Sequence[Mapping[str, Any]]) -> None:
        if any(record["rows"] for record in records):
            return
        rejected = sum((Counter(record["rejected"]) for record in records), Counter())
        refused = ", ".join(f"{number:,} {reason}" for reason, number in sorted(rejected.items())) or "none"
        raise ModelError(
            f"no document is made of these conversations (refused: {refused})",
            where=str(source.directory),
            remedy="`spanloom model probe` says what the template does; see --train too",
        )

    return make_dataset(
        recipe_of(source, ingredients, caps, environment),
        jobs,
        root,
        work,
        options,
        progress,
        Running(verb="prove", workers=options.workers or useful_workers(sum(counts)), check=check),
        files=lambda: files,
        environment=environment,
    )


def _publish_files(root: Path, ingredients: Ingredients) -> tuple[ListedFile, ...]:
    """Writes what the tokens are made with: the model's files below `model/`, and the probe's result."""
    present = [name for name in MODEL_FILES if (ingredients.folder / name).is_file()]
    files = [published(root, f"{MODEL_FOLDER}/{name}", (ingredients.folder / name).read_bytes()) for name in present]
    return (*files, published(root, PROBE_NAME, readable_json(probed(ingredients))))


def probed(ingredients: Ingredients) -> dict[str, Any]:
    """The probe's result for the model under these rules, as JSON."""
    rules, proving = ingredients.rules, ingredients.proving
    result = probe(
        ingredients.model,
        probed_conversations(None),
        thinking=rules.thinking,
        variables=rules.variables,
        served=proving.served,
        control_texts=proving.control_texts,
        eod=proving.eod,
    )
    return as_json(result)


def check_caps_of(caps: RowCaps, root: str) -> None:
    """Raises ConflictError if a capped run has the default root (a path or a URI) of a full dataset."""
    if caps.any:
        check_capped_root(root, (defaults.ROOT,), remedy=f"give another root, such as {defaults.CAPPED_ROOT}")


def run(
    *,
    source: str,
    model: str,
    root: str,
    rules: ModelRules,
    asset: str | None = None,
    caps: RowCaps | None = None,
    shards: int | None = None,
    max_rejects: str = defaults.MAX_REJECTS,
    on_duplicate: str = defaults.ON_DUPLICATE,
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
    """Runs the step with paths or URIs. A remote root is claimed first.

    `asset`: where to put a copy of the tokenizer. `caps`: how many rows are read, None for all; `shards`: how many the
    source must have. Raises ConflictError if a capped run has the default root of a full dataset.

    With `shard`, makes and writes that shard alone, see `building.steps.run_shard`; assemble-dataset joins the shards.
    `rendered`, `inventory`, `work`: see `ShardPlaces`. Returns its inventory, otherwise the pending manifest.
    """
    caps, progress = caps or RowCaps(), progress or Progress(mode=Mode.SILENT)
    check_caps_of(caps, root)
    options = RunOptions(
        max_rejects=max_rejects,
        on_duplicate=on_duplicate,
        workers=workers,
        resume=resume,
        allow_unknown_sha=allow_unknown_sha,
    )
    options.check()
    places = shard_places(root, shard, rendered, inventory, work)
    environment = {"source": source, "model": model, "root": root}
    with (
        scratch_for("tokenize-conversations", [source, model, root, asset, shard], scratch) as staging,
        TemporaryDirectory(prefix="spanloom-") as kept,
        held_model(staged_model(staging, model)) as folder,
    ):
        opened = open_source(staged_source(staging, source, only=shard), shards=shards, only=shard)
        loaded = load_ingredients(folder, rules)
        staging.create(asset, loaded.model.tokenizer.path.read_bytes())
        if shard is not None and places is not None:
            this, rows = opened.shards[shard], caps.rows_read([each.rows for each in opened.shards])[shard]
            recipe = recipe_of(opened, loaded, caps, environment)
            return run_shard(
                staging,
                recipe,
                shard_job(this, rows, Path(kept), max_rejects),
                len(opened.shards),
                places,
                {**recipe.build, "shards": len(opened.shards)},
                options,
                Running(verb="prove", workers=workers or useful_workers(rows)),
                progress,
                source_bytes=this.bytes,
                files=lambda local_root: _publish_files(local_root, loaded),
            )

        def make(place: Path) -> Manifest:
            return tokenize_conversations(
                source=opened,
                ingredients=loaded,
                root=place,
                work=Path(kept),
                caps=caps,
                options=options,
                progress=progress,
                environment=environment,
            )

        identity = {
            "config": config_of(loaded, caps),
            "inputs": [opened.manifest_sha256],
            "tokenizer_sha256": loaded.model.tokenizer.sha256,
        }
        return made_at(root, staging, lambda: identity, make)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return shard_metadata(result) if "entry" in result else dataset_artifacts(result, tokenizer=("sha256",))
