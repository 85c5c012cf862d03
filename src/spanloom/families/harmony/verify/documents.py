"""Checks every document of a Harmony dataset, from the arrays on disk.

In: consecutive documents as stored on disk, and the rows that describe them. Out: findings with sequence and offset.
The label shift is repeated, not undone: spans derived from the tokens are shifted, and must equal those of the file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.conversations.source.manifest import ANY_MODEL_V1
from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.rows.table import row_batches
from spanloom.dataset.validate.disk_documents import SpanDocuments
from spanloom.families.harmony.contract.profile import Profile
from spanloom.families.harmony.tokenizer import EOD, VOCAB_SIZE
from spanloom.families.harmony.verify.structure.conversations import check_conversations, trains_all
from spanloom.families.harmony.verify.structure.messages import Faults, Messages, read_messages
from spanloom.families.harmony.verify.structure.order import check_ends, check_order
from spanloom.families.harmony.verify.structure.spans import TrainedMessages, labelled_runs, spans_of_messages
from spanloom.findings import Finding


@dataclass(frozen=True, kw_only=True)
class HarmonyDocuments(SpanDocuments):
    """Documents with spans, and the profile of their dataset."""

    profile: Profile

    @cached_property
    def read(self) -> tuple[Messages, Faults]:
        """The messages, and the faults of their headers."""
        faults = Faults(self.lengths)
        return read_messages(self.tokens, self.lengths, faults, chat=self.profile.cuts), faults

    @property
    def of_any_model(self) -> bool:
        """Whether they are made of conversations in the format for any model."""
        return self.profile.source.schema_version == ANY_MODEL_V1


def trained_messages(
    config: Mapping[str, Any], cutting: Mapping[str, int] | None, profile: Profile
) -> TrainedMessages | None:
    """Which messages are trained according to the config of a dataset; None for a profile without a choice.

    `cutting`: the counts of its conversations.
    """
    if not profile.cuts:
        return None
    spans = tuple(profile.span_names.index(name) for name in config["train"])
    return TrainedMessages(
        history=config["history"],
        turns=config["turns"],
        spans=spans,
        merged=config.get("merge") is True,
        untrained=bool((cutting or {}).get("untrained_messages")),
        prompted=config.get("mask_generation_prompt") is True,
        truncated=bool((cutting or {}).get("truncated_messages")),
        call_format=config.get("call_format", "constrain"),
    )


def check_documents(documents: HarmonyDocuments, trained: TrainedMessages | None = None) -> Iterator[Finding]:
    """Checks EOD, ids, values, mask = (span > 0), the label shift, and the spans against the headers in the tokens."""
    tokens, lossmask, span, lengths = documents.tokens, documents.lossmask, documents.span, documents.lengths
    last = np.cumsum(lengths, dtype=np.int64) - 1
    yield from documents.at("eod", "the document does not end in EOD", last[tokens[last] != EOD])
    high = np.flatnonzero(tokens.view(np.uint32) >= EOD)  # few tokens; as uint32 a negative id is high too
    eods, ids = high[tokens[high] == EOD], tokens[high].view(np.uint32)
    yield from documents.at("eod", "EOD inside a document", np.setdiff1d(eods, last, assume_unique=True))
    yield from documents.at("ids", f"a token id outside 0 … {VOCAB_SIZE - 1}", high[ids >= VOCAB_SIZE])
    yield from documents.at("values", "a loss mask value other than 0 or 1", np.flatnonzero(lossmask > 1))
    names = documents.profile.span_names
    *numbers, highest = map(str, range(len(names)))
    message = f"a span id other than {', '.join(numbers)} or {highest}"
    yield from documents.at("values", message, np.flatnonzero(span >= len(names)))
    yield from documents.at("mask_is_span", "loss mask and span disagree", np.flatnonzero((span > 0) != (lossmask > 0)))
    trained_end = (lossmask[last] != 0) | (span[last] != 0)
    yield from documents.at("shift", "the last position of a document has no label to train", last[trained_end])

    messages, faults = documents.read
    derived = spans_of_messages(messages, faults, trained, span)
    check_ends(messages, faults, chat=trained is not None)
    if trained is not None and documents.of_any_model:
        check_order(messages, faults, ends_in_run=trained.history != "keep")
    for fault in faults.found:
        yield documents.finding("structure", fault.message, fault.document, fault.offset)
    labels = np.append(derived[1:], np.uint8(0))
    labels[last] = 0
    yield from documents.at("span", "the span is not that of the next token's message", np.flatnonzero(labels != span))


def check_rows(
    documents: HarmonyDocuments,
    rows: pa.Table,
    digests: npt.NDArray[np.uint64],
    content: Content,
    trained: TrainedMessages | None,
) -> Iterator[Finding]:
    """Checks the rows of these documents: numbers, token counts, order, and the split that follows from each id.

    `digests` uint64 [N]: of the rows' ids, see `digests_of`.
    """
    yield from documents.check_rows(rows, documents.counted(documents.profile.span_names))
    steps = np.diff(rows.column("row").to_numpy())
    ordered = steps > 0
    if documents.profile.cuts:
        ordered |= (steps == 0) & (np.diff(rows.column("cut").to_numpy()) > 0)
        yield from _check_cuts(documents, rows)
        if "runs" in rows.column_names:
            yield from _check_runs(documents, rows)
    if trained is not None:
        all_runs = trains_all(content.config, content.totals.cutting or {}, len(content.span_names) - 1)
        for at, message in check_conversations(
            documents.read[0],
            documents.span,
            rows,
            trained,
            all_runs=all_runs,
            shows_runs=documents.of_any_model,
            begins_file=documents.first == 0,
        ):
            yield documents.finding("rows", message, at)
    for at in np.flatnonzero(~ordered).tolist():
        yield documents.finding("rows", "the documents do not follow the order of the source rows", at + 1)
    id_column = documents.profile.split_column
    for at in np.flatnonzero(rows.column(id_column).is_null().to_numpy()).tolist():
        yield documents.finding("rows", f"{id_column} is null", at)
    yield from documents.check_split(rows.column(id_column), digests, content)


def _check_cuts(documents: HarmonyDocuments, rows: pa.Table) -> Iterator[Finding]:
    """Checks that ids consist of conversation and cut, and that all cuts of a row belong to one conversation."""
    ids, conversations = rows.column("id").to_pylist(), rows.column("conversation").to_pylist()
    source_rows, cuts = rows.column("row").to_pylist(), rows.column("cut").to_pylist()
    before: tuple[int, str] | None = None
    for at, (name, conversation, row, cut) in enumerate(zip(ids, conversations, source_rows, cuts, strict=True)):
        if name != f"{conversation}#{cut}":
            yield documents.finding("rows", f"id is {name!r}, cut {cut} of {conversation!r} has another", at)
        if before is not None and before[0] == row and before[1] != conversation:
            yield documents.finding("rows", f"cuts of row {row} are of several conversations", at)
        before = row, conversation


def check_trained_runs(content: Content, shard: ShardEntry, tables: Sequence[Path]) -> Iterator[Finding]:
    """Compares the number of runs that a shard's documents train with the number in the manifest.

    `tables`: its row tables. Raises ArtifactError for an unreadable one.
    """
    cutting, config = shard.cutting, content.config
    if cutting is None or config.get("merge") is not True:
        return
    column = pa.schema([pa.field("runs", pa.int64(), nullable=False)])
    runs = sum(sum(batch.column("runs").to_pylist()) for table in tables for batch in row_batches(table, column))
    everything = config["turns"] == "all" and trains_all(config, cutting, len(content.span_names) - 1)
    if runs > cutting["runs"] or (everything and runs != cutting["runs"]):
        message = f"cutting.runs is {cutting['runs']}, the documents train {runs}"
        yield Finding(check="manifest", message=message, shard=shard.shard)


def _check_runs(documents: HarmonyDocuments, rows: pa.Table) -> Iterator[Finding]:
    """Checks that `runs` is the number of labelled runs, and that the weight is a finite number above 0."""
    labelled = labelled_runs(documents.read[0], documents.span)
    runs = rows.column("runs").to_numpy()
    for at in np.flatnonzero(labelled != runs).tolist():
        yield documents.finding("rows", f"runs is {runs[at]}, {labelled[at]} assistant runs have labels", at)
    for at in np.flatnonzero(labelled == 0).tolist():
        yield documents.finding("rows", "the document trains nothing", at)
    weights = rows.column("weight").to_numpy()
    for at in np.flatnonzero(~(np.isfinite(weights) & (weights > 0))).tolist():
        yield documents.finding("rows", f"the weight {weights[at]} is not a number above 0", at)
