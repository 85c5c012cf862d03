"""Step tokenize-conversations: conversations and a model's folder → a token dataset, not validated yet.

In: a source folder, a model's folder, `ModelRules`. Out: the files under the dataset root, including the model's files,
`probe.json` and `manifest.pending.json`. A conversation with a run that is neither proven nor declared is refused,
counted by class and listed in `rejects/`. The id of a conversation decides the split of all its documents.

The size of a batch of rows does not depend on the workers. Finished batches are kept in the folder of intermediates, so
that a stopped build can be resumed.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from spanloom.building.disk import Size
from spanloom.building.request import DatasetRequest
from spanloom.building.shards.files import DatasetJob, require_documents
from spanloom.building.steps import StepTask, make_requested, shard_metadata
from spanloom.conversations.source.caps import RowCaps, check_capped_root
from spanloom.conversations.source.folder import Source, is_wanted, open_source, text_bytes
from spanloom.conversations.source.places import staged_source
from spanloom.dataset.root.layout import MODEL_FOLDER
from spanloom.families.models import defaults
from spanloom.families.models.defaults import MODEL_FILES
from spanloom.families.models.documents.rules import (
    PROBE_NAME,
    Ingredients,
    ModelRules,
    by_either_proof,
    load_ingredients,
)
from spanloom.families.models.errors import ModelError
from spanloom.families.models.places import held_model, staged_model
from spanloom.families.models.probe.conversations import probed_conversations
from spanloom.families.models.probe.result import ProbeOptions, as_json, probe
from spanloom.families.models.recipe import ARRAY_DTYPES, FAMILY, recipe_of, useful_workers
from spanloom.kubeflow import dataset_artifacts
from spanloom.provenance import readable_json
from spanloom.report.progress import Mode, Progress
from spanloom.storage.scratch import scratch_for


def request_of(
    source: Source, ingredients: Ingredients, caps: RowCaps, *, given: Mapping[str, Any], only: int | None = None
) -> DatasetRequest:
    """The dataset of a source for a model. `only`: the one shard that is there; `given`: places as given, for the
    manifest.

    Making it raises RejectedRowError if more conversations are refused than allowed, DuplicateIdError for a repeated id
    unless such are kept, ModelError if no document is made, SourceError, ConflictError.
    """

    def error(refused: str) -> ModelError:
        return ModelError(
            f"no document is made of these conversations (refused: {refused})",
            where=str(source.directory),
            remedy="`spanloom model probe` says what the template does; see --train too",
        )

    recipe = recipe_of(source, ingredients, caps, given)
    rows = caps.rows_read([shard.rows for shard in source.shards])
    job = DatasetJob(
        recipe=recipe,
        shards=source.shards,
        rows=rows,
        verb="prove",
        useful_workers=useful_workers,
        check=require_documents(error),
    )

    def size() -> Size:
        """About how much is read. Templates add little to the texts of conversations."""
        shares = [
            (text_bytes(shard) if is_wanted(shard.index, only) else shard.bytes, read / shard.rows)
            for shard, read in zip(source.shards, rows, strict=True)
            if shard.rows
        ]
        return Size.of_text(sum(text * share for text, share in shares), sum(rows))

    folder = ingredients.folder
    present = [name for name in MODEL_FILES if (folder / name).is_file()]
    return DatasetRequest(
        identity={
            "family": FAMILY,
            "config": recipe.build["config"],
            "source": source.manifest_sha256,
            "tokenizer": ingredients.model.tokenizer.sha256,
        },
        arrays=ARRAY_DTYPES,
        shards=len(source.shards),
        size=size,
        opened=lambda: nullcontext(job),
        carried={
            **{f"{MODEL_FOLDER}/{name}": (folder / name).read_bytes for name in present},
            PROBE_NAME: lambda: readable_json(probed(ingredients)),
        },
        absent=[f"{MODEL_FOLDER}/{name}" for name in MODEL_FILES if name not in present],
    )


def probed(ingredients: Ingredients) -> dict[str, Any]:
    """The probe's result for the model under these rules, as JSON."""
    rules, proving = ingredients.rules, ingredients.proving
    result = probe(
        ingredients.model,
        probed_conversations(None),
        ProbeOptions(
            thinking=rules.thinking,
            variables=rules.variables,
            served=proving.served,
            control_texts=proving.control_texts,
            eod=proving.eod,
            call_ids=rules.call_ids,
            inline_calls=rules.inline_calls,
            text_beside_calls=rules.text_beside_calls,
        ),
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
    task: StepTask,
    progress: Progress | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Runs the step with paths or URIs. A remote root is claimed first.

    `asset`: where to put a copy of the tokenizer. `caps`: how many rows are read, None for all; `shards`: how many the
    source must have. Raises ConflictError if a capped run has the default root of a full dataset. Returns the pending
    manifest; of a task for one shard its inventory.
    """
    caps, only = caps or RowCaps(), task.shard
    check_caps_of(caps, root)
    with (
        scratch_for("tokenize-conversations", [source, model, root, asset, only], scratch) as staging,
        held_model(staged_model(staging, model)) as folder,
    ):
        opened = open_source(staged_source(staging, source, only=only), shards=shards, only=only)
        loaded = load_ingredients(folder, rules)
        staging.create(asset, loaded.model.tokenizer.path.read_bytes())
        given = {"source": source, "model": model, "root": root}
        shown = progress or Progress(mode=Mode.SILENT)

        def made(by: Ingredients) -> dict[str, Any]:
            return make_requested(staging, request_of(opened, by, caps, given=given, only=only), root, task, shown)

        # A task of one shard knows nothing of what others made by these paths: it fails, and says what to do.
        return made(loaded) if only is not None else by_either_proof(made, loaded, shown)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return shard_metadata(result) if "entry" in result else dataset_artifacts(result, tokenizer=("sha256",))
