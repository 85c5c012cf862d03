"""Reasoning traces: how the traces of a dataset in a store become documents.

In: a snapshot of a store, the ids of a dataset, a tokenizer, the rules. Out: a `Recipe` for `spanloom.building`. Each
trace is one document, closed by a masked EOD; its id decides its split. Traces that were deleted since the dataset was
built are refused and counted. Rows are numbered as in the export, with the deleted traces behind; row i goes to shard i
mod the number of shards.

The recorded source is the export in the same format: its rows, bytes and sha256 are in the manifest. A token dataset
can thus be checked against the file that others train on.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from spanloom.building.assembly import build_facts
from spanloom.building.kept import KeptRows
from spanloom.building.recipe import DatasetForm, FileShard, Made, OfFile, Part
from spanloom.building.shards.ids import split_decided
from spanloom.dataset.family import Layout
from spanloom.dataset.rows.table import weighed
from spanloom.families.traces import defaults
from spanloom.families.traces.encoding.tokenizer import find_eod, load_tokenizer
from spanloom.families.traces.encoding.tokens import (
    ARRAY_DTYPES,
    INPUT_SCHEMA,
    SPAN_NAMES,
    TokenFormat,
    TokenizedTrace,
    tokenized,
)
from spanloom.families.traces.errors import TraceError
from spanloom.families.traces.export.lines import ExportOptions, line_of, record, texts_of
from spanloom.families.traces.store.database import Snapshot, StoredTrace
from spanloom.families.traces.store.manifest import TraceManifest
from spanloom.machine import workers_that_fit
from spanloom.provenance import sha256_json
from spanloom.records.scalars import is_number
from spanloom.storage.unchanged import check_loaded
from spanloom.supervision import closed_documents
from spanloom.tokenizers.encoding import JsonTokenizer

FAMILY = "reasoning_traces"
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

BATCH = 256
"""Traces of a part."""

LIBRARIES = ("tokenizers", "numpy", "pyarrow")
"""The libraries that make the tokens and the files of parts."""

WORKER_BYTES = 500 << 20
"""The memory of one process with a tokenizer of 250,000 tokens and a batch of traces."""

TRACES_WORTH_LOADING = 20_000
"""About as many traces as one process encodes while another one loads the tokenizer."""


def useful_workers(traces: int) -> int:
    """The number of processes that CPUs and memory allow, with at least `TRACES_WORTH_LOADING` traces for each."""
    return max(1, min(workers_that_fit(WORKER_BYTES), traces // TRACES_WORTH_LOADING))


@dataclass(frozen=True, kw_only=True)
class TokenizeRules:
    """Options that decide the bytes, besides traces and tokenizer. `eod`: the name of a token; None: the usual one.

    `weight`: the key of `meta` whose number is the weight of a document, in the column `weight` of the row table;
    `max_rows`: how many traces are read, None for all; `longest`: the most tokens of a document, EOD included: longer
    ones are left out.
    """

    form: TokenFormat = defaults.TOKENIZE_FORMAT
    eod: str | None = None
    options: ExportOptions = field(
        default_factory=lambda: ExportOptions(control_tokens=defaults.TOKENIZE_CONTROL_TOKENS)
    )
    valid_fraction: float = defaults.VALID_FRACTION
    weight: str | None = None
    max_rows: int | None = None
    longest: int | None = None


def config_of(rules: TokenizeRules, tokenizer: JsonTokenizer) -> dict[str, Any]:
    """The manifest's `config`. Raises OptionError if there is no end-of-document token."""
    return {
        "format": rules.form,
        **asdict(rules.options),
        "eod": find_eod(tokenizer, rules.eod),
        "valid_fraction": rules.valid_fraction,
        **({} if rules.weight is None else {"weight": rules.weight}),
        **({} if rules.max_rows is None else {"max_rows": rules.max_rows}),
        **({} if rules.longest is None else {"longest": rules.longest}),
    }


@dataclass(frozen=True, kw_only=True)
class Export:
    """The export that a dataset is made of. `rows`: how many of the dataset's traces exist."""

    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class TraceRecipe(OfFile):
    """A build of one dataset of traces. `snapshot`, `ids`: of the rows, only in the process that reads; `given`: places
    as given."""

    snapshot: Snapshot | None
    ids: Sequence[str]
    export: Export
    shards: tuple[FileShard, ...]
    tokenizer: Path
    rules: TokenizeRules

    code = "traces"
    libraries = LIBRARIES

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "snapshot": None, "ids": (), "export": None}

    @property
    def form(self) -> DatasetForm:
        return form_of(self.rules)

    def identity(self) -> Mapping[str, Any]:
        return {"build": self.build, "export": self.export.sha256, "shards": len(self.shards)}

    def check_unchanged(self, shard: FileShard) -> None:
        """The snapshot does not change."""

    def parts(self, shard: FileShard, rows: int) -> Iterator[Part]:
        assert self.snapshot is not None, "the process that reads has the snapshot"
        numbers = range(shard.index, len(self.ids), len(self.shards))[:rows]
        for first in range(0, len(numbers), BATCH):
            chosen = numbers[first : first + BATCH]
            present = [number for number in chosen if number < self.export.rows]
            traces = dict(zip(present, self.snapshot.traces([self.ids[number] for number in present]), strict=True))
            held = [(self.ids[number], number, traces.get(number)) for number in chosen]
            key = sha256_json([[name, row] for name, row, _ in held])
            yield Part(index=first // BATCH, first_row=chosen[0], rows=len(chosen), key=key, holds=held)

    def made(self, shard: FileShard, part: Part, token_budget: int | None) -> Iterator[Made]:
        tokenizer = _tokenizer(self.tokenizer, self.build["tokenizer"]["sha256"])
        traces = [trace for _, _, trace in part.holds if trace is not None]
        texts = [texts_of(trace, self.rules.options) for trace in traces]
        as_text = self.rules.options.control_tokens == "text"
        encoded = list(tokenized(texts, self.rules.form, tokenizer, self.rules.options.system, as_text=as_text))
        by_trace = iter(zip(traces, encoded, strict=True))
        rows: KeptRows[tuple[StoredTrace, TokenizedTrace]] = KeptRows(
            shard.index, "trace_id", longest=self.rules.longest, budget=token_budget
        )
        for name, row, trace in part.holds:
            if trace is None:
                rows.refuse(row, name, DELETED, "the trace is not in the store any more")
                continue
            stored, document = next(by_trace)
            if not rows.keep(row, name, (stored, document), document.ids.size + 1):
                break
        kept = [document for _, (_, document) in rows.documents]
        yield Made(
            rows_read=rows.read,
            documents=closed_documents(
                [document.ids for document in kept],
                [document.loss_mask for document in kept],
                [document.span_id for document in kept],
                self.build["tokenizer"]["eod"],
            ),
            about=_about(rows.documents, self.rules),
            refused=rows.refused,
            whole=rows.read == len(part.holds),
        )

    def input_of(self, shard: FileShard) -> Mapping[str, Any]:  # noqa: ARG002  # all shards are made of one export
        export = self.export
        return {"path": export.path, "rows": export.rows, "bytes": export.bytes, "sha256": export.sha256}


DELETED = "deleted"


@cache
def _tokenizer(path: Path, sha256: str) -> JsonTokenizer:
    """The tokenizer of this process. Raises SourceError if the file has changed since the build began."""
    tokenizer = load_tokenizer(path)
    check_loaded(tokenizer.sha256 == sha256, "the tokenizer", str(path))
    return tokenizer


def form_of(rules: TokenizeRules) -> DatasetForm:
    """The form of the documents under these rules."""
    return DatasetForm(
        family=FAMILY,
        layout=Layout(arrays=ARRAY_DTYPES, span_names=SPAN_NAMES),
        about=weighed(ABOUT_SCHEMA, {"weight": rules.weight}),
        split_column="trace_id",
        id_column="trace_id",
    )


def recipe_of(
    snapshot: Snapshot,
    dataset: TraceManifest,
    manifest_sha256: str,
    tokenizer: JsonTokenizer,
    rules: TokenizeRules,
    *,
    shards: int,
    given: Mapping[str, Any],
) -> TraceRecipe:
    """The recipe for a dataset, whose traces are read once for the hash of their export."""
    config = config_of(rules, tokenizer)
    facts = build_facts(
        form_of(rules),
        config=config,
        tokenizer=tokenizer.entry(config["eod"]["id"]),
        source={
            "schema_version": INPUT_SCHEMA,
            "manifest_sha256": manifest_sha256,
            "dataset": dataset.dataset_key,
        },
        split=split_decided("trace_id", rules.valid_fraction),
    )
    present = snapshot.present(dataset.ids)
    return TraceRecipe(
        snapshot=snapshot,
        ids=[*filter(present.__contains__, dataset.ids), *(name for name in dataset.ids if name not in present)],
        export=_export(snapshot, dataset, rules),
        shards=FileShard.of(dataset.dataset_key, len(dataset.ids), shards),
        tokenizer=tokenizer.path,
        rules=rules,
        build=facts,
        given=given,
    )


def _export(snapshot: Snapshot, dataset: TraceManifest, rules: TokenizeRules) -> Export:
    digest, size, rows = hashlib.sha256(), 0, 0
    for trace in snapshot.traces(dataset.ids):
        line = line_of(record(trace, rules.form, rules.options))
        digest.update(line)
        size, rows = size + len(line), rows + 1
    if not rows:
        raise TraceError(
            "none of the dataset's traces is in the store", where=dataset.dataset_key, remedy="build it again"
        )
    return Export(
        path=f"{dataset.dataset_key}.{rules.form}.jsonl",
        rows=rows,
        bytes=size,
        sha256=digest.hexdigest(),
    )


def _about(documents: Sequence[tuple[int, tuple[StoredTrace, TokenizedTrace]]], rules: TokenizeRules) -> pa.RecordBatch:
    encoded = [document for _, (_, document) in documents]
    traces = [trace for _, (trace, _) in documents]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row for row, _ in documents], pa.int64()),
            pa.array([trace.id for trace in traces], pa.string()),
            pa.array([_source(trace) for trace in traces], pa.string()),
            pa.array([document.response_start for document in encoded], pa.int64()),
            pa.array([document.boundary_tokens for document in encoded], pa.int64()),
            pa.array([document.control_strings for document in encoded], pa.int64()),
            *([] if rules.weight is None else [_weights(traces, rules.weight)]),
        ],
        schema=form_of(rules).about,
    )


def _weights(traces: Sequence[StoredTrace], key: str) -> pa.Array:
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
