"""Step tokenize-toolcalls: samples of one split → a token dataset with a loss mask, not validated yet.

In: a file of samples, the split, a chat template, a tokenizer. Out: the files under the dataset root, including
tokenizer, template and registries, and `manifest.pending.json`. See `spanloom.families.toolcalls.recipe`.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

from spanloom.building.disk import Size
from spanloom.building.request import DatasetRequest
from spanloom.building.shards.files import DatasetJob, require_documents
from spanloom.building.steps import StepTask, make_requested, shard_metadata
from spanloom.conversations.source.caps import RowCaps
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.families.toolcalls.format.findings import ToolCallError
from spanloom.families.toolcalls.recipe import (
    FAMILY,
    REGISTRIES_NAME,
    TEMPLATE_NAME,
    Ingredients,
    SampleFile,
    ToolCallRecipe,
    load_ingredients,
    read_file,
    useful_workers,
)
from spanloom.families.toolcalls.recipe import TokenizeRules as TokenizeRules
from spanloom.kubeflow import dataset_artifacts
from spanloom.provenance import readable_json
from spanloom.report.progress import Mode, Progress
from spanloom.storage.scratch import scratch_for


def request_of(
    file: SampleFile, split: str, ingredients: Ingredients, *, shards: int, given: Mapping[str, Any]
) -> DatasetRequest:
    """The token dataset of one split. `given`: places as given, for the manifest. Making it raises DuplicateIdError for
    a duplicate id, ToolCallError if no sample has a mask."""

    def error(refused: str) -> ToolCallError:
        return ToolCallError(
            f"no {split} sample can be masked: {refused}",
            where=str(file.path),
            remedy="`spanloom toolcalls audit` says what is wrong with template or samples",
        )

    recipe = ToolCallRecipe.of(file, split, ingredients, shards=shards, given=given)
    job = DatasetJob(
        recipe=recipe,
        shards=recipe.shards,
        rows=RowCaps(max_rows=ingredients.rules.max_rows).rows_read([shard.rows for shard in recipe.shards]),
        verb=f"tokenize {split}",
        useful_workers=useful_workers,
        check=require_documents(error),
    )
    return DatasetRequest(
        identity={
            "family": FAMILY,
            "config": recipe.build["config"],
            "source": [file.sha256],
            "tokenizer": ingredients.tokenizer.sha256,
        },
        arrays=ingredients.rules.layout.arrays,
        shards=shards,
        size=lambda: Size.of_text(file.state.bytes, 0),
        opened=lambda: nullcontext(job),
        carried={
            TOKENIZER_NAME: ingredients.tokenizer.path.read_bytes,
            TEMPLATE_NAME: ingredients.template.text.encode,
            REGISTRIES_NAME: lambda: readable_json(dict(ingredients.registries.listed)),
        },
    )


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
    task: StepTask,
    progress: Progress | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Runs the step on paths or URIs. A remote root is claimed first. Raises ToolCallError if the split has no sample.

    `tokenizer_out`: the place to copy the tokenizer to, for later steps. Returns the pending manifest; of a task for
    one shard its inventory.
    """
    with scratch_for("tokenize-toolcalls", [data, root, template, tokenizer, task.shard], scratch) as staging:
        loaded = load_ingredients(staging.file(template), staging.file(tokenizer), rules)
        if tokenizer_out is not None:
            staging.bring_home(loaded.tokenizer.path, tokenizer_out)
        file = read_file(staging.file(data))
        if not file.samples[split]:
            raise ToolCallError(f"there is no {split} sample", where=data, remedy="give a file of both splits")
        request = request_of(file, split, loaded, shards=shards, given={"data": data, "root": root})
        return make_requested(staging, request, root, task, progress or Progress(mode=Mode.SILENT))


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if "entry" in result:
        return shard_metadata(result)
    return dataset_artifacts(result, tokenizer=("sha256",), harmful=result["content"]["config"]["harmful"])
