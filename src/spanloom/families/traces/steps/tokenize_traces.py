"""Step tokenize-traces: a dataset of traces → a token dataset with loss mask and spans, not yet validated.

In: a store, the manifest of a dataset in it, a tokenizer. Out: the files under the dataset root, including the
tokenizer, and `manifest.pending.json`. Each trace is one document, closed by a masked EOD; its id decides its split.

The recorded source is the export in the same format: its rows, bytes and sha256 are in the manifest. A token dataset
can thus be checked against the file that others train on.
"""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from spanloom.dataset.manifest import Input, InputShard, Manifest, ShardEntry
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.root.made import published, write_pending
from spanloom.dataset.root.places import made_at
from spanloom.dataset.rows.table import weighed
from spanloom.dataset.split_writer import SplitWriter, by_split, split_writers
from spanloom.errors import OptionError
from spanloom.families.traces import defaults
from spanloom.families.traces.errors import TraceError
from spanloom.families.traces.export.lines import ExportOptions, check_controls, line_of, record, texts_of
from spanloom.families.traces.places import opened_store, staged_manifest
from spanloom.families.traces.render import CONTROL_STRINGS, TURN_MARKS, TraceTexts
from spanloom.families.traces.store.database import Snapshot, Store, StoredTrace
from spanloom.families.traces.store.manifest import TraceManifest
from spanloom.families.traces.tokenizer import find_eod, load_tokenizer
from spanloom.families.traces.tokens import (
    ARRAY_DTYPES,
    INPUT_SCHEMA,
    SPAN_NAMES,
    TokenFormat,
    TokenizedTrace,
    tokenized,
)
from spanloom.kubeflow import dataset_artifacts
from spanloom.provenance import library_versions, require_git_sha
from spanloom.records.scalars import is_number
from spanloom.split import SPLITS, id_digests
from spanloom.storage.scratch import scratch_for
from spanloom.tokenizers.encoding import JsonTokenizer
from spanloom.workers import OnProgress

FAMILY = "reasoning_traces"
SHARD = 0
ABOUT_SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),
        pa.field("trace_id", pa.string(), nullable=False),
        pa.field("source", pa.string()),
        pa.field("response_start", pa.int64(), nullable=False),
        pa.field("boundary_tokens", pa.int64(), nullable=False),
        pa.field("control_strings", pa.int64(), nullable=False),
    ]
)
"""`row`: number in the export, from 0. `source`: `source` of the trace's meta, if it is text."""

_log = logging.getLogger(__name__)
_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class TokenizeRules:
    """Options that decide the bytes, besides traces and tokenizer. `eod`: the name of a token; None: the usual one.

    `weight`: the key of `meta` whose number is the weight of a document, in the column `weight` of the row table.
    """

    form: TokenFormat = defaults.TOKENIZE_FORMAT
    eod: str | None = None
    options: ExportOptions = field(
        default_factory=lambda: ExportOptions(control_tokens=defaults.TOKENIZE_CONTROL_TOKENS)
    )
    valid_fraction: float = defaults.VALID_FRACTION
    weight: str | None = None


def config_of(rules: TokenizeRules, tokenizer: JsonTokenizer) -> dict[str, Any]:
    """The manifest's `config`. Raises OptionError if there is no end-of-document token."""
    return {
        "format": rules.form,
        **asdict(rules.options),
        "eod": find_eod(tokenizer, rules.eod),
        "valid_fraction": rules.valid_fraction,
        **({} if rules.weight is None else {"weight": rules.weight}),
    }


def tokenize_traces(
    *,
    store: Store,
    dataset: TraceManifest,
    manifest_sha256: str,
    root: Path,
    tokenizer: JsonTokenizer,
    rules: TokenizeRules,
    allow_unknown_sha: bool = False,
    environment: dict[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Manifest:
    """Writes the token dataset at `root` and returns its pending manifest.

    Files are created, never overwritten: a file that exists with the same bytes counts as written. `on_progress` gets
    traces. Raises ControlStringsError if control strings in content are refused, TraceError if no trace of the dataset
    exists, OptionError if each document would contain the EOD before its end, ConflictError if other bytes exist.
    """
    made_by = require_git_sha(allow_unknown=allow_unknown_sha)
    config = config_of(rules, tokenizer)
    with (
        store.snapshot() as snapshot,
        split_writers(
            root, SHARD, arrays=ARRAY_DTYPES, span_names=SPAN_NAMES, about=weighed(ABOUT_SCHEMA, config)
        ) as writers,
    ):
        _check_eod(rules, tokenizer, config["eod"])
        _warn_of_template(rules, tokenizer)
        _check_controls(snapshot, dataset.ids, rules, tokenizer, config["eod"]["text"])
        counts = _Counts()
        waiting = snapshot.traces(dataset.ids)
        while traces := list(islice(waiting, _BATCH)):
            _write(traces, rules, tokenizer, int(config["eod"]["id"]), writers, counts)
            if on_progress:
                on_progress(counts.rows, len(dataset.ids))
        if not counts.rows:
            raise TraceError(
                "none of the dataset's traces is in the store", where=dataset.dataset_key, remedy="build it again"
            )
        entry = ShardEntry(
            shard=SHARD,
            rows_read=len(dataset.ids),
            rejected={"deleted": gone} if (gone := len(dataset.ids) - counts.rows) else {},
            rejects_file=None,
            splits={split: writers[split].publish() for split in SPLITS},
        )
    exported = f"{dataset.dataset_key}.{rules.form}.jsonl"
    source = InputShard(path=exported, rows=counts.rows, bytes=counts.size, sha256=counts.sha256.hexdigest())
    return write_pending(
        root,
        entry,
        family=FAMILY,
        git_sha=made_by,
        config=config,
        tokenizer=tokenizer,
        input=Input(
            schema_version=INPUT_SCHEMA,
            manifest_sha256=manifest_sha256,
            dataset=dataset.dataset_key,
            shards=(source,),
        ),
        id_column="trace_id",
        repeated_rows=counts.rows - len(counts.ids),
        arrays=ARRAY_DTYPES,
        span_names=SPAN_NAMES,
        files=(published(root, TOKENIZER_NAME, tokenizer.path.read_bytes()),),
        environment={"libraries": library_versions("tokenizers"), **(environment or {})},
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


@dataclass(kw_only=True)
class _Counts:
    """Size and hash of the export, without writing it."""

    rows: int = 0
    size: int = 0
    ids: set[int] = field(default_factory=set)
    sha256: Any = field(default_factory=hashlib.sha256)


def _write(
    traces: list[StoredTrace],
    rules: TokenizeRules,
    tokenizer: JsonTokenizer,
    eod: int,
    writers: dict[str, SplitWriter],
    counts: _Counts,
) -> None:
    first = counts.rows
    for trace in traces:
        line = line_of(record(trace, rules.form, rules.options))
        counts.sha256.update(line)
        counts.size += len(line)
    digests = id_digests(trace.id for trace in traces)
    counts.ids.update(digests.tolist())
    counts.rows += len(traces)
    texts = [texts_of(trace, rules.options) for trace in traces]
    as_text = rules.options.control_tokens == "text"
    documents = list(tokenized(texts, rules.form, tokenizer, rules.options.system, as_text=as_text))
    for split, chosen in by_split(digests, rules.valid_fraction):
        _append(writers[split], [(first + at, traces[at], documents[at]) for at in chosen], eod, rules)


def _append(
    writer: SplitWriter, documents: list[tuple[int, StoredTrace, TokenizedTrace]], eod: int, rules: TokenizeRules
) -> None:
    encoded = [document for _, _, document in documents]
    about = pa.RecordBatch.from_arrays(
        [
            pa.array([row for row, _, _ in documents], pa.int64()),
            pa.array([trace.id for _, trace, _ in documents], pa.string()),
            pa.array([_source(trace) for _, trace, _ in documents], pa.string()),
            pa.array([document.response_start for document in encoded], pa.int64()),
            pa.array([document.boundary_tokens for document in encoded], pa.int64()),
            pa.array([document.control_strings for document in encoded], pa.int64()),
            *([] if rules.weight is None else [_weights([trace for _, trace, _ in documents], rules.weight)]),
        ],
        schema=weighed(ABOUT_SCHEMA, {"weight": rules.weight}),
    )
    spans = [document.span_id for document in encoded]
    writer.append_documents(about, [document.ids for document in encoded], spans, eod)


def _weights(traces: list[StoredTrace], key: str) -> pa.Array:
    """The number under a key of each trace's meta. Raises TraceError if it is missing, negative or not a number."""
    weights = []
    for trace in traces:
        weight = (trace.payload["meta"] or {}).get(key)
        if not is_number(weight) or weight < 0:
            raise TraceError(
                f"meta.{key} is {weight!r}, and a weight is a number of 0 or more",
                where=f"trace {trace.id}",
                remedy=f"build the dataset with --where '{key} >= 0'",
            )
        weights.append(float(weight))
    return pa.array(weights, pa.float64())


def _source(trace: StoredTrace) -> str | None:
    source = (trace.payload["meta"] or {}).get("source")
    return source if isinstance(source, str) else None


def run(
    *,
    store: str,
    dataset: str,
    root: str,
    tokenizer: str,
    rules: TokenizeRules,
    asset: str | None = None,
    allow_unknown_sha: bool = False,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over paths and URIs: `store` a URL or a file, `dataset` the file of its manifest. A remote root is
    claimed first.

    `asset`: the path for a copy of the tokenizer.
    """
    with scratch_for("tokenize-traces", [store, dataset, root, tokenizer, asset], scratch) as staging:
        manifest, sha256 = staged_manifest(staging, dataset)
        loaded = load_tokenizer(staging.file(tokenizer))

        def make(folder: Path) -> Manifest:
            with opened_store(staging, store) as opened:
                return tokenize_traces(
                    store=opened,
                    dataset=manifest,
                    manifest_sha256=sha256,
                    root=folder,
                    tokenizer=loaded,
                    rules=rules,
                    allow_unknown_sha=allow_unknown_sha,
                    environment={"dataset": dataset, "root": root},
                )

        staging.create(asset, loaded.path.read_bytes())
        identity = {"config": config_of(rules, loaded), "inputs": [sha256], "tokenizer_sha256": loaded.sha256}
        return made_at(root, staging, lambda: identity, make)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return dataset_artifacts(result, tokenizer=("name", "sha256", "vocab_size", "eod"))
