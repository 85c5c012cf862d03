"""Training files: one row per sample, with its tokens and its mask; or one row per member of a batch.

In: samples with masks. Out: JSON Lines or Parquet with the same rows, in the order of the samples.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.errors import SpanloomError
from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls.format.control import PYTHON_TAG
from spanloom.families.toolcalls.format.tables import source_of, split_of, subtype_of, weight_of
from spanloom.families.toolcalls.merge.merged import lines_of_samples
from spanloom.families.toolcalls.tokens.batches import pair
from spanloom.families.toolcalls.tokens.masks import Masked
from spanloom.storage.folders.repeated import OnSame
from spanloom.storage.folders.repeated_files import written_once

FLAT_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("split", pa.string()),
        ("subtype", pa.string()),
        ("sample_weight", pa.float64()),
        ("text", pa.string()),
        ("input_ids", pa.list_(pa.int32())),
        ("loss_mask_start", pa.int32()),
        ("loss_mask_end", pa.int32()),
        ("has_tool_call", pa.bool_()),
        ("source", pa.string()),
    ]
)
BATCHED_SCHEMA = pa.schema([("batch_id", pa.int64()), ("role", pa.string()), *FLAT_SCHEMA])


def flat_row(masked: Masked) -> dict[str, Any]:
    """The row of one sample. `has_tool_call`: whether assistant_raw has a `<|python_tag|>`."""
    sample = masked.sample
    subtype = subtype_of(sample)
    return {
        "id": sample.get("id"),
        "split": split_of(sample),
        "subtype": subtype,
        "sample_weight": weight_of(sample, subtype),
        "text": masked.text,
        "input_ids": masked.ids.tolist(),
        "loss_mask_start": masked.start,
        "loss_mask_end": masked.end,
        "has_tool_call": PYTHON_TAG in sample["assistant_raw"],
        "source": source_of(sample) or None,
    }


def batched_rows(masked: Sequence[Masked], **pairing: Any) -> Iterator[dict[str, Any]]:
    """Yields the rows of all members of all batches, harmful first. `pairing`: the options of `batches.pair`."""
    by_sample = {id(member.sample): member for member in masked}
    batches = pair([member.sample for member in masked], **pairing)
    for number, (harmful, benign) in enumerate(batches):
        for role, sample in [("harmful", harmful), *(("benign", sample) for sample in benign)]:
            yield {"batch_id": number, "role": role, **flat_row(by_sample[id(sample)])}


def write_rows(
    path: Path,
    rows: Iterable[dict[str, Any]],
    schema: pa.Schema,
    *,
    overwrite: bool = False,
    on_same: OnSame | None = None,
) -> int:
    """Writes the rows as Parquet or JSON Lines, by the suffix .parquet or .jsonl. Returns the number of rows.

    The file gets its name only when it is complete; if it has these bytes already, `on_same` is called. Raises
    SpanloomError for another suffix, ConflictError if the file has other bytes, unless `overwrite` is set.
    """
    if path.suffix not in {".parquet", ".jsonl"}:
        raise SpanloomError("unsupported file type", where=str(path), remedy=".jsonl or .parquet")
    written, waiting = 0, iter(rows)
    with written_once(path, overwrite=overwrite, on_same=on_same) as stream:
        if path.suffix == ".jsonl":
            for row in waiting:
                stream.write(lines_of_samples([row]))
                written += 1
            return written
        with pq.ParquetWriter(stream, schema, compression="zstd") as writer:
            while block := list(islice(waiting, defaults.ROW_GROUP_ROWS)):
                writer.write_table(pa.Table.from_pylist(block, schema=schema), row_group_size=defaults.ROW_GROUP_ROWS)
                written += len(block)
    return written
