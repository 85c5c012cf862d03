"""An export as a file: JSON Lines or Parquet, with tokens and masks if a tokenizer is given.

In: a snapshot, a dataset, a format. Out: the file, which appears when it is complete; counts. Memory holds one page.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from spanloom.errors import OptionError
from spanloom.families.traces.encoding.tokens import BATCH, tokenized
from spanloom.families.traces.export.lines import ExportFormat, ExportOptions, check_controls, line_of, record, texts_of
from spanloom.families.traces.store.database import Snapshot
from spanloom.storage.folders.repeated import OnSame
from spanloom.storage.folders.repeated_files import written_once
from spanloom.tokenizers.encoding import JsonTokenizer
from spanloom.workers import OnProgress

if TYPE_CHECKING:  # pyarrow takes 40 MB, and JSON Lines do not need it
    import pyarrow as pa

PARQUET = ".parquet"
_TEXTS = {
    "trace": ("id", "prompts", "final_answer", "metadata"),
    "tunix_sft": ("id", "prompts", "final_answer", "metadata"),
    "training_example": ("id", "prompt", "response", "metadata"),
    "messages": ("id", "metadata"),
}


@dataclass(frozen=True, kw_only=True)
class TokenColumns:
    """Columns that a tokenizer adds: `input_ids`, `loss_mask`, and `offsets` if requested.

    `max_length`: longer rows are cut at their end; a cut row without trained tokens is left out and counted.
    """

    tokenizer: JsonTokenizer
    offsets: bool = False
    max_length: int | None = None


@dataclass(kw_only=True)
class ExportCounts:
    """Counts of the traces of a dataset: written, cut, left out."""

    exported: int = 0
    skipped_deleted: int = 0
    boundary_tokens: int = 0
    control_strings_in_content: int = 0
    cut: int = 0
    dropped_without_labels: int = 0

    def as_dict(self, *, tokens: bool) -> dict[str, int]:
        """The counts as JSON; without a tokenizer, only those of traces."""
        return dict(vars(self)) if tokens else {"exported": self.exported, "skipped_deleted": self.skipped_deleted}


def records(
    snapshot: Snapshot,
    ids: Sequence[str],
    form: ExportFormat,
    options: ExportOptions,
    tokens: TokenColumns | None,
    counts: ExportCounts,
) -> Iterator[dict[str, Any]]:
    """The records of an export, in order; updates `counts` while the caller iterates.

    Raises OptionError for tokens in the format `trace`, ControlStringsError if control strings are refused.
    """
    if options.control_tokens == "reject":
        check_controls(snapshot, ids)
    traces = snapshot.traces(ids)
    counts.skipped_deleted = len(ids)
    if tokens is None:
        for trace in traces:
            counts.exported += 1
            counts.skipped_deleted -= 1
            yield record(trace, form, options)
        return
    if form == "trace" or form == "messages":
        raise OptionError(f"the format {form} has no mask", remedy="--format tunix_sft or training_example")
    while batch := list(islice(traces, BATCH)):
        texts = [texts_of(trace, options) for trace in batch]
        counts.skipped_deleted -= len(batch)
        for trace, document in zip(batch, tokenized(texts, form, tokens.tokenizer, options.system), strict=True):
            if tokens.max_length is not None and document.ids.size > tokens.max_length:
                document = document.cut(tokens.max_length)
                counts.cut += 1
            if not document.loss_mask.any():
                counts.dropped_without_labels += 1
                continue
            counts.boundary_tokens += document.boundary_tokens
            counts.control_strings_in_content += document.control_strings
            counts.exported += 1
            yield {**record(trace, form, options), **document.columns(offsets=tokens.offsets)}


def write_lines(
    stream: BinaryIO, values: Iterator[dict[str, Any]], total: int, on_progress: OnProgress | None = None
) -> None:
    """Writes records as JSON Lines."""
    for number, value in enumerate(values, start=1):
        stream.write(line_of(value))
        if on_progress and number % 1000 == 0:
            on_progress(number, total)
    if on_progress:
        on_progress(total, total)


def write_file(
    path: Path,
    values: Iterator[dict[str, Any]],
    form: ExportFormat,
    total: int,
    tokens: TokenColumns | None = None,
    on_progress: OnProgress | None = None,
    *,
    overwrite: bool = True,
    on_same: OnSame | None = None,
) -> None:
    """Writes a file, Parquet if its name ends in `.parquet`, else JSON Lines. `path` appears when it is complete.

    Without `overwrite`, raises ConflictError if `path` has other bytes; `on_same` is called if it has the same.
    """
    with written_once(path, overwrite=overwrite, on_same=on_same) as stream:
        if path.suffix != PARQUET:
            write_lines(stream, values, total, on_progress)
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = parquet_schema(form, tokens)
        with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
            written = 0
            while batch := list(islice(values, 1000)):
                rows = [{**row, "metadata": json.dumps(row["metadata"], ensure_ascii=False)} for row in batch]
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                written += len(batch)
                if on_progress:
                    on_progress(written, total)


def parquet_schema(form: ExportFormat, tokens: TokenColumns | None) -> "pa.Schema":
    """The columns of an export as Parquet. `metadata` is JSON text, since its keys differ between rows."""
    import pyarrow as pa

    fields = [pa.field(name, pa.string(), nullable=False) for name in _TEXTS[form]]
    if form == "trace":
        fields.insert(2, pa.field("trace_steps", pa.list_(pa.string()), nullable=False))
    if form == "messages":
        message = pa.struct([pa.field(name, pa.string()) for name in ("role", "content", "reasoning_content")])
        fields.insert(1, pa.field("messages", pa.list_(message), nullable=False))
    if tokens is not None:
        fields.append(pa.field("input_ids", pa.list_(pa.int32()), nullable=False))
        fields.append(pa.field("loss_mask", pa.list_(pa.uint8()), nullable=False))
        if tokens.offsets:
            fields.append(pa.field("offsets", pa.list_(pa.list_(pa.int32())), nullable=False))
    return pa.schema(fields)
