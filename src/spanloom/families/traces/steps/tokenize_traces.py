"""Step tokenize-traces: a dataset of traces → a token dataset with loss mask and spans, not yet validated.

In: a store, the manifest of a dataset in it, a tokenizer. Out: the files under the dataset root, including the
tokenizer, and `manifest.pending.json`. See `spanloom.families.traces.recipe`.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from spanloom.building.options import RunOptions
from spanloom.building.shards.files import Running, make_dataset, shard_job
from spanloom.building.steps import run_shard, shard_metadata, shard_places
from spanloom.dataset.manifest import ListedFile, Manifest
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.root.made import published
from spanloom.dataset.root.places import made_at
from spanloom.errors import OptionError
from spanloom.families.traces.encoding.tokenizer import load_tokenizer
from spanloom.families.traces.encoding.tokens import tokenized
from spanloom.families.traces.export.lines import check_controls
from spanloom.families.traces.places import opened_store, staged_manifest
from spanloom.families.traces.recipe import TokenizeRules as TokenizeRules
from spanloom.families.traces.recipe import TraceRecipe, config_of, recipe_of, useful_workers
from spanloom.families.traces.render import CONTROL_STRINGS, TURN_MARKS, TraceTexts
from spanloom.families.traces.store.database import Snapshot, Store
from spanloom.families.traces.store.manifest import TraceManifest
from spanloom.kubeflow import dataset_artifacts
from spanloom.provenance import library_versions
from spanloom.report.progress import Mode, Progress
from spanloom.storage.scratch import scratch_for
from spanloom.tokenizers.encoding import JsonTokenizer

_log = logging.getLogger(__name__)


@contextmanager
def _opened_recipe(
    store: Store,
    dataset: TraceManifest,
    manifest_sha256: str,
    tokenizer: JsonTokenizer,
    rules: TokenizeRules,
    shards: int,
    given: Mapping[str, Any],
) -> Iterator[TraceRecipe]:
    """The recipe over one snapshot of the store, checked, while the block runs."""
    config = config_of(rules, tokenizer)
    with store.snapshot() as snapshot:
        _check_eod(rules, tokenizer, config["eod"])
        _warn_of_template(rules, tokenizer)
        _check_controls(snapshot, dataset.ids, rules, tokenizer, config["eod"]["text"])
        yield recipe_of(snapshot, dataset, manifest_sha256, tokenizer, rules, shards=shards, given=given)


def _publish_tokenizer(root: Path, tokenizer: JsonTokenizer) -> tuple[ListedFile, ...]:
    return (published(root, TOKENIZER_NAME, tokenizer.path.read_bytes()),)


def tokenize_traces(
    *,
    store: Store,
    dataset: TraceManifest,
    manifest_sha256: str,
    root: Path,
    work: Path,
    tokenizer: JsonTokenizer,
    rules: TokenizeRules,
    shards: int = 1,
    options: RunOptions,
    progress: Progress,
    environment: Mapping[str, Any],
) -> Manifest:
    """Writes the token dataset at `root` and returns its pending manifest. `work`: the folder of intermediates.

    Files are created, never overwritten: a file that exists with the same bytes counts as written. Raises
    ControlStringsError if control strings in content are refused, TraceError if no trace of the dataset exists,
    OptionError if each document would contain the EOD before its end, ConflictError if other bytes exist.
    """
    with _opened_recipe(store, dataset, manifest_sha256, tokenizer, rules, shards, environment) as recipe:
        return make_dataset(
            recipe,
            [shard_job(shard, shard.rows, work, options.max_rejects) for shard in recipe.shards],
            root,
            work,
            options,
            progress,
            Running(verb="tokenize", workers=options.workers or useful_workers(len(dataset.ids))),
            files=lambda: _publish_tokenizer(root, tokenizer),
            environment={"libraries": library_versions("tokenizers"), **environment},
        )


def _check_eod(rules: TokenizeRules, tokenizer: JsonTokenizer, eod: dict[str, Any]) -> None:
    """Checks that only the appended EOD occurs, unless control strings are copied. Tests a trace without text."""
    (empty,) = tokenized([TraceTexts(prompt="", steps=[], final_answer="")], rules.form, tokenizer)
    if rules.options.control_tokens != "verbatim" and eod["id"] in empty.ids:
        raise OptionError(
            f"every document would hold the EOD {eod['text']!r} before its end: the tokenizer adds it to each text, or "
            f"the template of {rules.form} has it",
            where=str(tokenizer.path),
            remedy="name another token, --eod TOKEN; or allow it inside of documents, --control-tokens verbatim",
        )


def _warn_of_template(rules: TokenizeRules, tokenizer: JsonTokenizer) -> None:
    missing = [mark for mark in TURN_MARKS if tokenizer.id_of(mark) is None]
    if rules.form == "tunix_sft" and missing:
        _log.warning(
            "the tokenizer has no token %s: these marks of the template become ordinary text. "
            "With --format training_example there are none",
            " and no ".join(missing),
        )


def _check_controls(
    snapshot: Snapshot, ids: Sequence[str], rules: TokenizeRules, tokenizer: JsonTokenizer, eod: str
) -> None:
    """Refuses content that the tokenizer would encode as control tokens, unless that was requested. `escape` breaks the
    template's control strings. Those only of the tokenizer stay in the export, so they cannot be broken."""
    if rules.options.control_tokens == "verbatim":
        # A template may have the EOD itself; of the texts, none may end a document in its middle.
        remedy = "change them; name another token, --eod TOKEN; or encode them as text: --control-tokens text"
        check_controls(snapshot, ids, [eod], whose="the dataset, its EOD,", remedy=remedy)
        if eod in (rules.options.system or ""):
            raise OptionError(f"the system text holds the EOD {eod!r}", remedy=remedy)
    if rules.options.control_tokens in ("verbatim", "text"):
        return
    if rules.options.control_tokens == "reject":
        check_controls(snapshot, ids)
    others = (tokenizer.special_texts() | {eod}) - set(CONTROL_STRINGS)
    only = "change them, or copy all control strings, --control-tokens verbatim, or encode them: --control-tokens text"
    check_controls(snapshot, ids, others, whose=f"the tokenizer ({', '.join(sorted(others)[:5])})", remedy=only)
    if any(text in (rules.options.system or "") for text in others):
        raise OptionError("the system text holds control strings of the tokenizer", remedy=only)


def run(
    *,
    store: str,
    dataset: str,
    root: str,
    tokenizer: str,
    rules: TokenizeRules,
    asset: str | None = None,
    shards: int = 1,
    max_rejects: str | None = None,
    on_duplicate: str = "keep",
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
    """The step over paths and URIs: `store` a URL or a file, `dataset` the file of its manifest. A remote root is
    claimed first.

    `asset`: the path for a copy of the tokenizer. With `shard`, makes and writes that shard alone: see
    `building.steps.run_shard`; returns its inventory, otherwise the pending manifest.
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
    environment = {"dataset": dataset, "root": root}
    with (
        scratch_for("tokenize-traces", [store, dataset, root, tokenizer, asset, shard], scratch) as staging,
        TemporaryDirectory(prefix="spanloom-") as kept,
    ):
        manifest, sha256 = staged_manifest(staging, dataset)
        loaded = load_tokenizer(staging.file(tokenizer))
        staging.create(asset, loaded.path.read_bytes())
        if shard is not None and places is not None:
            with (
                opened_store(staging, store) as opened,
                _opened_recipe(opened, manifest, sha256, loaded, rules, shards, environment) as recipe,
            ):
                this = recipe.shards[shard]
                return run_shard(
                    staging,
                    recipe,
                    shard_job(this, this.rows, Path(kept), max_rejects),
                    shards,
                    places,
                    recipe.identity(),
                    options,
                    Running(verb="tokenize", workers=workers or useful_workers(this.rows)),
                    progress,
                    source_bytes=recipe.export.bytes // shards,
                    files=lambda local_root: _publish_tokenizer(local_root, loaded),
                )

        def make(folder: Path) -> Manifest:
            with opened_store(staging, store) as opened:
                return tokenize_traces(
                    store=opened,
                    dataset=manifest,
                    manifest_sha256=sha256,
                    root=folder,
                    work=Path(kept),
                    tokenizer=loaded,
                    rules=rules,
                    shards=shards,
                    options=options,
                    progress=progress,
                    environment=environment,
                )

        identity = {"config": config_of(rules, loaded), "inputs": [sha256], "tokenizer_sha256": loaded.sha256}
        return made_at(root, staging, lambda: identity, make)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if "entry" in result:
        return shard_metadata(result)
    return dataset_artifacts(result, tokenizer=("name", "sha256", "vocab_size", "eod"))
