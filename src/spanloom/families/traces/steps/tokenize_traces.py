"""Step tokenize-traces: a dataset of traces → a token dataset with loss mask and spans, not yet validated.

In: a store, the manifest of a dataset in it, a tokenizer. Out: the files under the dataset root, including the
tokenizer, and `manifest.pending.json`. See `spanloom.families.traces.recipe`.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from spanloom.building.disk import Size
from spanloom.building.request import DatasetRequest
from spanloom.building.shards.files import DatasetJob
from spanloom.building.steps import StepTask, make_requested, shard_metadata
from spanloom.conversations.source.caps import RowCaps
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.errors import OptionError
from spanloom.families.traces.encoding.tokenizer import load_tokenizer
from spanloom.families.traces.encoding.tokens import ARRAY_DTYPES, tokenized
from spanloom.families.traces.export.lines import check_controls
from spanloom.families.traces.places import opened_store, staged_manifest
from spanloom.families.traces.recipe import FAMILY, config_of, recipe_of, useful_workers
from spanloom.families.traces.recipe import TokenizeRules as TokenizeRules
from spanloom.families.traces.render import CONTROL_STRINGS, TURN_MARKS, TraceTexts
from spanloom.families.traces.store.database import Snapshot, Store
from spanloom.families.traces.store.manifest import TraceManifest
from spanloom.kubeflow import dataset_artifacts
from spanloom.report.progress import Mode, Progress
from spanloom.storage.scratch import scratch_for
from spanloom.tokenizers.encoding import JsonTokenizer

_log = logging.getLogger(__name__)


def request_of(
    open_here: Callable[[], AbstractContextManager[Store]],
    dataset: TraceManifest,
    manifest_sha256: str,
    tokenizer: JsonTokenizer,
    rules: TokenizeRules,
    *,
    shards: int,
    given: Mapping[str, Any],
) -> DatasetRequest:
    """The token dataset of a dataset of traces. `open_here` opens the store; `given`: places as given.

    Making it raises ControlStringsError if control strings in content are refused, TraceError if no trace of the
    dataset exists, OptionError if each document would contain the EOD before its end.
    """
    config = config_of(rules, tokenizer)

    @contextmanager
    def opened() -> Iterator[DatasetJob]:
        """Over one snapshot of the store, which is checked."""
        with open_here() as store, store.snapshot() as snapshot:
            _check_eod(rules, tokenizer, config["eod"])
            _warn_of_template(rules, tokenizer)
            _check_controls(snapshot, dataset.ids, rules, tokenizer, config["eod"]["text"])
            recipe = recipe_of(snapshot, dataset, manifest_sha256, tokenizer, rules, shards=shards, given=given)
            rows = RowCaps(max_rows=rules.max_rows).rows_read([shard.rows for shard in recipe.shards])
            yield DatasetJob(
                recipe=recipe, shards=recipe.shards, rows=rows, verb="tokenize", useful_workers=useful_workers
            )

    # 0 if the manifest does not say how long its traces are, as those of others
    text = float(dataset.stats.get("avg_total_chars", 0)) * len(dataset.ids)
    return DatasetRequest(
        identity={"family": FAMILY, "config": config, "source": manifest_sha256, "tokenizer": tokenizer.sha256},
        arrays=ARRAY_DTYPES,
        shards=shards,
        size=lambda: Size.of_text(text, len(dataset.ids)),
        opened=opened,
        carried={TOKENIZER_NAME: tokenizer.path.read_bytes},
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
    task: StepTask,
    progress: Progress | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over paths and URIs: `store` a URL or a file, `dataset` the file of its manifest. A remote root is
    claimed first.

    `asset`: the path for a copy of the tokenizer. Returns the pending manifest; of a task for one shard its inventory.
    """
    with scratch_for("tokenize-traces", [store, dataset, root, tokenizer, asset, task.shard], scratch) as staging:
        manifest, sha256 = staged_manifest(staging, dataset)
        loaded = load_tokenizer(staging.file(tokenizer))
        staging.create(asset, loaded.path.read_bytes())
        request = request_of(
            lambda: opened_store(staging, store),
            manifest,
            sha256,
            loaded,
            rules,
            shards=shards,
            given={"dataset": dataset, "root": root},
        )
        return make_requested(staging, request, root, task, progress or Progress(mode=Mode.SILENT))


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if "entry" in result:
        return shard_metadata(result)
    return dataset_artifacts(result, tokenizer=("name", "sha256", "vocab_size", "eod"))
