"""A dataset for a model on one machine: a source folder and a model's folder → a validated dataset root.

In: `BuildOptions`. Out: the dataset under `out`, with its manifest only when validation found nothing. Finished batches
lie under `out/.work/parts` and are kept when a build stops, so that the same command goes on from there.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanloom import workers
from spanloom.conversations.source.rejects import reject_limit
from spanloom.dataset.manifest import Content, Manifest
from spanloom.dataset.root.layout import MODEL_FOLDER
from spanloom.dataset.root.lock import WORK_NAME, BuildRecord, check_apart, data_names
from spanloom.families.models import dataset as family
from spanloom.families.models import defaults
from spanloom.families.models.documents.rules import MODEL_FILES, PROBE_NAME, ModelRules, load_ingredients
from spanloom.families.models.source.formats import open_source
from spanloom.families.models.steps.tokenize_conversations import (
    ARRAY_DTYPES,
    ON_DUPLICATE,
    PARTS_NAME,
    TokenizeOptions,
    tokenize_conversations,
)
from spanloom.megatron.official import require_megatron
from spanloom.provenance import require_git_sha
from spanloom.report.progress import Mode, Progress
from spanloom.split import SPLITS
from spanloom.steps.validate_alignment import BuildResult, made_and_validated


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What to build: of the conversations in `source`, for the model in `model`, at `out`.

    `source_as_given`: the URI that `source` was staged from, for the record; `deep`: rows that validation makes again.
    """

    source: Path
    model: Path
    out: Path = Path(defaults.ROOT)
    source_as_given: str | None = None
    rules: ModelRules = field(default_factory=ModelRules)
    max_rejects: str = defaults.MAX_REJECTS
    on_duplicate: str = ON_DUPLICATE[0]
    workers: int | None = None
    deep: int = defaults.DEEP
    resume: bool = True
    allow_unknown_sha: bool = False


def build(options: BuildOptions, progress: Progress | None = None) -> BuildResult:
    """Builds and validates a dataset. The same options and source give the same bytes, whatever the workers.

    Raises a SpanloomError for what stops it. Findings do not raise: they are in the report.
    """
    workers.leave_if_imported_by_a_worker()
    progress = progress or Progress(mode=Mode.SILENT)
    require_git_sha(allow_unknown=options.allow_unknown_sha)
    require_megatron()
    reject_limit(options.max_rejects, 0)
    for folder in (options.source, options.model):
        check_apart(folder, options.out)
    source = open_source(options.source)
    ingredients = load_ingredients(options.model, options.rules)
    config = ingredients.config()
    identity = {"config": config, "manifest_sha256": source.manifest_sha256}
    record = BuildRecord(
        identity=identity,
        files=(
            *data_names(shards=len(source.shards), splits=SPLITS, arrays=ARRAY_DTYPES, rejects=True),
            *(f"{MODEL_FOLDER}/{name}" for name in MODEL_FILES),
            PROBE_NAME,
        ),
        work=(PARTS_NAME,),
    )

    def make() -> Manifest:
        with progress.stage("prove"), progress.counting("prove", "conversations") as on_progress:
            return tokenize_conversations(
                source=source,
                ingredients=ingredients,
                root=options.out,
                options=TokenizeOptions(
                    work=options.out / WORK_NAME / PARTS_NAME,
                    max_rejects=options.max_rejects,
                    on_duplicate=options.on_duplicate,
                    workers=options.workers,
                    resume=options.resume,
                    allow_unknown_sha=options.allow_unknown_sha,
                    environment={
                        "source": options.source_as_given or str(options.source),
                        "model": str(options.model),
                        "workers": options.workers or 1,
                    },
                ),
                on_progress=on_progress,
            )

    def differs(content: Content) -> str | None:
        return _differs(content, identity, options)

    result = made_and_validated(
        options.out,
        record,
        family,
        progress,
        differs=differs,
        make=make,
        source=options.source,
        deep=options.deep,
    )
    assert result is not None, "make returns a manifest"
    return result


def _differs(content: Content, identity: dict[str, Any], options: BuildOptions) -> str | None:
    if content.config != identity["config"]:
        return "it was built with other options or for another model"
    if content.input.manifest_sha256 != identity["manifest_sha256"]:
        return "it was built from another source"
    if content.split is not None and content.split.repeated_rows and options.on_duplicate == ON_DUPLICATE[0]:
        return "ids come again in it, which --on-duplicate error does not allow"
    for shard in content.shards:
        if sum(shard.rejected.values()) > reject_limit(options.max_rejects, shard.rows_read):
            return "conversations were refused for it, more than --max-rejects allows"
    return None
