"""A dataset for a model on one machine: a source folder and a model's folder → a validated dataset root.

In: `BuildOptions`. Out: the dataset under `out`, with its manifest only when validation found nothing. Finished batches
are in `out/.work/parts` and are kept if a build stops, so that the same command resumes it.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanloom import workers
from spanloom.conversations.source.caps import RowCaps
from spanloom.conversations.source.folder import open_source
from spanloom.conversations.source.rejects import reject_limit
from spanloom.dataset.manifest import Content, Manifest
from spanloom.dataset.root.layout import MODEL_FOLDER
from spanloom.dataset.root.lock import NEW_NAME, WORK_NAME, BuildRecord, check_apart, data_names
from spanloom.errors import SpanloomError
from spanloom.families.models import dataset as family
from spanloom.families.models import defaults
from spanloom.families.models.documents.rules import MODEL_FILES, PROBE_NAME, ModelRules, load_ingredients
from spanloom.families.models.places import held_model
from spanloom.families.models.source.formats import FORMATS
from spanloom.families.models.steps.tokenize_conversations import (
    ARRAY_DTYPES,
    PARTS_NAME,
    TokenizeOptions,
    check_caps_of,
    config_of,
    tokenize_conversations,
)
from spanloom.megatron.readers import ReaderChoice, chosen_reader
from spanloom.provenance import require_git_sha
from spanloom.report.progress import Mode, Progress
from spanloom.split import SPLITS, TRAIN, VALID, empty_valid
from spanloom.steps.validate_alignment import BuildResult, Replacing, made_and_validated


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What to build: a dataset at `out` from the conversations in `source` for the model in `model`.

    `out` None is the default root, or the smoke root if the run is capped. `source_as_given` and `model_as_given`: the
    URIs that the folders were staged from, for the manifest. `shards`: the number of shards that the source must have.
    `deep`: the number of rows that validation makes again. `workers` None chooses by rows, CPUs and memory.
    """

    source: Path
    model: Path
    out: Path | None = None
    caps: RowCaps = field(default_factory=RowCaps)
    shards: int | None = None
    source_as_given: str | None = None
    model_as_given: str | None = None
    rules: ModelRules = field(default_factory=ModelRules)
    max_rejects: str = defaults.MAX_REJECTS
    on_duplicate: str = defaults.ON_DUPLICATE
    workers: int | None = None
    deep: int = defaults.DEEP
    resume: bool = True
    overwrite: bool = False
    keep_work: bool = False
    allow_unknown_sha: bool = False
    reader: ReaderChoice = "auto"

    @property
    def root(self) -> Path:
        return self.out or Path(defaults.CAPPED_ROOT if self.caps.any else defaults.ROOT)


def build(options: BuildOptions, progress: Progress | None = None) -> BuildResult:
    """Builds and validates a dataset. The same options and source give the same bytes, whatever the workers.

    Raises SpanloomError: for invalid options and folders before any work, for conversations, ids and conflicts later.
    Findings do not raise: they are in the report.
    """
    workers.end_importing_worker()
    progress = progress or Progress(mode=Mode.SILENT)
    require_git_sha(allow_unknown=options.allow_unknown_sha)
    chosen_reader(options.reader)
    reject_limit(options.max_rejects, 0)
    if options.workers is not None and options.workers < 1:
        raise SpanloomError(f"--workers must be at least 1, not {options.workers}")
    out = options.root
    check_caps_of(options.caps, str(out))
    for folder in (options.source, options.model):
        check_apart(folder, out)
    with held_model(options.model) as model:
        return _built(options, model, progress)


def _built(options: BuildOptions, model: Path, progress: Progress) -> BuildResult:
    """`build`, of checked options. `model`: the copy of the model's folder."""
    out = options.root
    source = open_source(options.source, FORMATS, shards=options.shards)
    for shard in source.shards:
        if not shard.rows:
            progress.say(f"warning: {shard.where} has 0 rows; it will have no files")
    with progress.stage("load the model"):
        ingredients = load_ingredients(model, options.rules)
    config = config_of(ingredients, options.caps)
    identity = {"config": config, "manifest_sha256": source.manifest_sha256}
    record = BuildRecord(
        identity=identity,
        files=(
            *data_names(shards=len(source.shards), splits=SPLITS, arrays=ARRAY_DTYPES, rejects=True),
            *(f"{MODEL_FOLDER}/{name}" for name in MODEL_FILES),
            PROBE_NAME,
        ),
        work=(PARTS_NAME, NEW_NAME),
    )

    def make(root: Path) -> Manifest:
        progress.say("probing the chat template, then proving each conversation …")
        with progress.stage("prove"), progress.counting("prove", "conversations") as on_progress:
            return tokenize_conversations(
                source=source,
                ingredients=ingredients,
                root=root,
                options=TokenizeOptions(
                    work=out / WORK_NAME / PARTS_NAME,
                    caps=options.caps,
                    max_rejects=options.max_rejects,
                    on_duplicate=options.on_duplicate,
                    workers=options.workers,
                    resume=options.resume,
                    allow_unknown_sha=options.allow_unknown_sha,
                    environment={
                        "source": options.source_as_given or str(options.source),
                        "model": options.model_as_given or str(options.model),
                    },
                ),
                on_progress=on_progress,
            )

    def is_identity_of(content: Content, identity: dict[str, Any]) -> bool:
        return identity == {"config": content.config, "manifest_sha256": content.input.manifest_sha256}

    result = made_and_validated(
        out,
        record,
        family,
        progress,
        differs=lambda content: _differs(content, identity, options),
        make=make,
        replacing=Replacing(overwrite=options.overwrite, resume=options.resume, is_identity_of=is_identity_of),
        keep_work=options.keep_work,
        reader=options.reader,
        source=options.source,
        deep=options.deep,
    )
    assert result is not None, "make returns a manifest"
    totals = result.manifest.content.totals
    if note := family.empty_thoughts(totals.cutting or {}):
        progress.say(f"note: {note}, since the template's variables do not switch thinking off")
    splits = totals.splits
    if result.report.clean and not splits[VALID].sequences and options.rules.valid_fraction > 0:
        progress.say(empty_valid(splits[TRAIN].sequences, options.rules.valid_fraction))
    return result


def _differs(content: Content, identity: dict[str, Any], options: BuildOptions) -> str | None:
    if content.config != identity["config"]:
        return "it was built with other options or for another model"
    if content.input.manifest_sha256 != identity["manifest_sha256"]:
        return "it was built from another source"
    if content.split is not None and content.split.repeated_rows and options.on_duplicate == defaults.ON_DUPLICATE:
        return "it has duplicate ids, which --on-duplicate error does not allow"
    for shard in content.shards:
        if sum(shard.rejected.values()) > reject_limit(options.max_rejects, shard.rows_read):
            return "more of its conversations were refused than --max-rejects allows"
    return None
