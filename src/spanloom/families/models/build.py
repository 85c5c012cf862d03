"""A dataset for a model on one machine: a source folder and a model's folder → a validated dataset root.

In: `BuildOptions`. Out: the dataset under `out`, with its manifest only when validation found nothing. Finished batches
are in `out/.work/parts` and are kept if a build stops, so that the same command resumes it.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from spanloom.building.make import BuildResult
from spanloom.building.options import RunOptions
from spanloom.building.request import build_requested
from spanloom.conversations.source.caps import RowCaps
from spanloom.conversations.source.folder import open_source
from spanloom.dataset.root.lock import check_apart
from spanloom.families.models import dataset as family
from spanloom.families.models import defaults
from spanloom.families.models.documents.rules import Ingredients, ModelRules, by_either_proof, load_ingredients
from spanloom.families.models.places import held_model
from spanloom.families.models.steps.tokenize_conversations import check_caps_of, request_of
from spanloom.families.models.verify.frames import frames_ahead
from spanloom.megatron.validator import Validator
from spanloom.report.progress import Mode, Progress
from spanloom.split import TRAIN, VALID, empty_valid


@dataclass(frozen=True, kw_only=True)
class BuildOptions(RunOptions):
    """What to build: a dataset at `out` from the conversations in `source` for the model in `model`.

    `out` None is the default root, or the smoke root if the run is capped. `source_as_given` and `model_as_given`: the
    URIs that the folders were staged from, for the manifest. `shards`: the number of shards that the source must have.
    """

    source: Path
    model: Path
    out: Path | None = None
    caps: RowCaps = field(default_factory=RowCaps)
    shards: int | None = None
    source_as_given: str | None = None
    model_as_given: str | None = None
    rules: ModelRules = field(default_factory=ModelRules)
    max_rejects: str | None = defaults.MAX_REJECTS
    on_duplicate: str = defaults.ON_DUPLICATE
    deep: int = defaults.DEEP

    @property
    def root(self) -> Path:
        return self.out or Path(defaults.CAPPED_ROOT if self.caps.any else defaults.ROOT)


def build(options: BuildOptions, progress: Progress | None = None, validator: Validator | None = None) -> BuildResult:
    """Builds and validates a dataset. The same options and source give the same bytes, whatever the workers.

    `validator`: the validating process, if it is already running.

    Raises SpanloomError: for invalid options and folders before any work, for conversations, ids and conflicts later.
    Findings do not raise: they are in the report.
    """
    progress = progress or Progress(mode=Mode.SILENT)
    options.check()
    out = options.root
    check_caps_of(options.caps, str(out))
    for folder in (options.source, options.model):
        check_apart(folder, out)
    with held_model(options.model) as model:
        return _built(options, model, progress, validator)


def _built(options: BuildOptions, model: Path, progress: Progress, validator: Validator | None) -> BuildResult:
    """`build`, of checked options. `model`: the copy of the model's folder."""
    source = open_source(options.source, shards=options.shards)
    for shard in source.shards:
        if not shard.rows:
            progress.say(f"warning: {shard.where} has 0 rows; it will have no files")
    with progress.stage("load the model"):
        ingredients = load_ingredients(model, options.rules)
    given = {
        "source": options.source_as_given or str(options.source),
        "model": options.model_as_given or str(options.model),
    }

    def built(loaded: Ingredients) -> BuildResult:
        request = request_of(source, loaded, options.caps, given=given)
        return build_requested(
            options.root,
            request,
            family,
            options,
            progress,
            validator=validator,
            ahead=partial(frames_ahead, model, request.identity["config"]),
            source=options.source,
            deep=options.deep,
            workers=options.workers,
        )

    result = by_either_proof(built, ingredients, progress)
    totals = result.manifest.content.totals
    if note := family.empty_thoughts(totals.cutting or {}):
        progress.say(f"note: {note}, since the template's variables do not switch thinking off")
    splits = totals.splits
    if result.report.clean and not splits[VALID].sequences and options.rules.valid_fraction > 0:
        progress.say(empty_valid(splits[TRAIN].sequences, options.rules.valid_fraction))
    return result
