"""All six steps on one machine: a `synth_harmony_v1` or `harmony_conversations_v1` folder → a validated dataset.

In: `BuildOptions`. Out: the dataset under `out`; its manifest is written only if validation has no findings.
Intermediates are under `out/.work`. They are kept when a build stops, so that the same command can resume it, and
removed when the build is done.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from spanloom.building.make import BuildResult
from spanloom.building.request import DatasetRequest, build_requested
from spanloom.building.shards.files import DatasetJob
from spanloom.conversations.source.folder import Source, open_source, read_listing
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.root.lock import check_apart
from spanloom.errors import SourceError
from spanloom.families.harmony import chat_dataset, dataset
from spanloom.families.harmony.contract.profile import (
    ARRAY_DTYPES,
    HARMONY_CHAT,
    SYNTH_KD,
    Profile,
    profile_of_family,
    profile_of_source,
)
from spanloom.families.harmony.estimate import estimate
from spanloom.families.harmony.options import BuildOptions, check_options, settled
from spanloom.families.harmony.recipe import recipe_of
from spanloom.families.harmony.render.routes import ROWS_WORTH_LOADING, loading_ahead, renderer_version, worker_bytes
from spanloom.machine import workers_that_fit
from spanloom.megatron.validator import Validator
from spanloom.report.progress import Mode, Progress
from spanloom.split import TRAIN, VALID, empty_valid
from spanloom.tokenizers.o200k.asset import ASSET_SHA256, locate_asset, verify_asset

FAMILIES: dict[Profile, DatasetFamily] = {SYNTH_KD: dataset, HARMONY_CHAT: chat_dataset}
"""Profile → the module that validation and reports call."""


def build(options: BuildOptions, progress: Progress | None = None, validator: Validator | None = None) -> BuildResult:
    """Builds and validates a dataset. The same options and source give the same bytes with any number of workers.

    `validator`: the validating process, if it is already running.

    Raises a SpanloomError before any work for an invalid tokenizer, source, option or root, or a lack of disk space;
    later for rows, duplicates, conflicts and dead workers. Findings do not raise: they are in the report.
    """
    progress = progress or Progress(mode=Mode.SILENT)
    check_options(options)
    check_apart(options.source, options.root)
    # Rendering and validation check the special tokens; validation also encodes texts of this dataset with tiktoken.
    asset = verify_asset(locate_asset(options.tokenizer))
    source = open_source(options.source, shards=options.shards)
    options = settled(options, source)
    root = options.root
    check_apart(options.source, root)
    for shard in source.shards:
        if not shard.rows:
            progress.say(f"warning: {shard.where} has 0 rows; it will have no files")
    family = FAMILIES[profile_of_family(profile_of_source(source.format).family)]
    result = build_requested(
        root,
        _request_of(options, source, asset),
        family,
        options,
        progress,
        differs=lambda content: _other_renderer(content, options),
        validator=validator,
        ahead=partial(dataset.load_for_source, asset, options.deep),
        source=options.source,
        deep=options.deep,
        tokenizer=asset,
        workers=options.workers,
    )
    if result.report.clean:
        _warn_of_empty_splits(result, options, progress)
    return result


def _request_of(options: BuildOptions, source: Source, asset: Path) -> DatasetRequest:
    shards, caps = source.shards, options.caps
    rows = caps.rows_read([shard.rows for shard in shards])
    recipe = recipe_of(
        source,
        asset=asset,
        renderer=options.renderer,
        rules=options.rules,
        audit_fraction=options.audit_fraction,
        caps=caps,
        given={"source": options.source_as_given or str(options.source), "tokenizer": str(asset)},
        valid_fraction=options.valid_fraction,
    )

    def check(_: Sequence[Mapping[str, Any]]) -> None:
        if read_listing(options.source).manifest_sha256 != source.manifest_sha256:
            raise SourceError(
                "the source's manifest has changed since the build began",
                where=str(options.source),
                remedy="run the build again once the source no longer changes, with --no-resume",
            )

    job = DatasetJob(
        recipe=recipe,
        shards=shards,
        rows=rows,
        tokens=[caps.share(number, len(rows)).tokens for number in range(len(rows))],
        verb="render",
        useful_workers=partial(_useful_workers, recipe.profile),
        pooled=sum(rows) >= ROWS_WORTH_LOADING,
        ahead=loading_ahead(options.renderer, asset, sum(rows)),
        check=check,
    )
    return DatasetRequest(
        identity={
            "family": recipe.profile.family,
            "config": recipe.build["config"],
            "source": source.manifest_sha256,
            "tokenizer": ASSET_SHA256,
        },
        arrays=ARRAY_DTYPES,
        shards=len(shards),
        size=lambda: estimate(source, options.rules, caps),
        opened=lambda: nullcontext(job),
    )


def _other_renderer(content: Mapping[str, Any], options: BuildOptions) -> str | None:
    wanted, used = renderer_version(options.renderer), content["renderer"]["version"]
    return None if used == wanted else f"it was rendered by {used}, not by {wanted}"


def _useful_workers(profile: Profile, rows: int) -> int:
    """As many workers as CPUs and memory allow, but not so many that the work is done before the last has loaded its
    libraries."""
    return max(1, min(workers_that_fit(worker_bytes(profile)), rows // ROWS_WORTH_LOADING))


def _warn_of_empty_splits(result: BuildResult, options: BuildOptions, progress: Progress) -> None:
    splits = result.manifest.content.totals.splits
    if not splits[TRAIN].sequences and not splits[VALID].sequences:
        progress.say("warning: the dataset holds no documents at all")
    elif not splits[VALID].sequences and options.valid_fraction > 0:
        progress.say(empty_valid(splits[TRAIN].sequences, options.valid_fraction))
