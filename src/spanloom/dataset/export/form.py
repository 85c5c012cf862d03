"""The forms of an export: the columns and their meanings for each trainer.

In: a manifest's `content`. Out: `Form`.

`parquet` has everything in a dataset: `span_id` if there is an array `span`, `attention_mask` if documents are blocks
of one length (the last may be padded), and columns that the family adds from its rows, such as an id. `trl` has only
the columns that TRL trains on, `axolotl` those by which Axolotl knows a tokenized dataset; `llama-factory` has the same
columns in a folder of `save_to_disk` (`disk_folder`). `megatron-bridge` has rows of whole documents, label-aligned
(`bridge_rows`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spanloom.dataset import defaults
from spanloom.dataset.defaults import FormName
from spanloom.dataset.export import bridge_rows
from spanloom.dataset.family import ExportColumn
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import hub_split
from spanloom.errors import DatasetError

PADDING_COLUMN = "padding_tokens"
"""The column of the row table with the number of padding tokens at the end of a block."""

_FIELDS = {
    "input_ids": (pa.list_(pa.int32()), "the tokens of one conversation, the EOD at its end"),
    "labels": (pa.list_(pa.int32()), "the token where it is trained, -100 elsewhere; not shifted, trainers do that"),
    "loss_mask": (pa.list_(pa.uint8()), "1 where trained"),
    "assistant_masks": (pa.list_(pa.uint8()), "`loss_mask` under the name that TRL reads"),
    "completion_mask": (pa.list_(pa.uint8()), "1 where trained"),
    "attention_mask": (pa.list_(pa.uint8()), "1, and 0 where the last block is padded"),
    "span_id": (pa.list_(pa.uint8()), ""),
    "target_token_ids": (pa.list_(pa.list_(pa.int32())), "the teacher's k most probable tokens to follow each token"),
    "target_logprobs": (
        pa.list_(pa.list_(pa.float32())),
        "their log-probabilities, renormalised over the k: what the teacher gives to all other tokens is lost",
    ),
    "target_mask": (pa.list_(pa.list_(pa.uint8())), "1 where the token that follows is trained and was scored"),
}
_TARGETS = ("target_token_ids", "target_logprobs", "target_mask")
"""Of a teacher, position by position, k values each. Entry t is about token t + 1: Axolotl does not shift them."""

_BLOCK = "the tokens of one block: conversations end to end, cut where the block ends"

_COLUMNS = {
    "trl": ("input_ids", "labels", "completion_mask"),
    "axolotl": ("input_ids", "attention_mask", "labels"),
    "llama-factory": ("input_ids", "attention_mask", "labels"),
}


@dataclass(frozen=True, kw_only=True)
class Form:
    """The form of an export. `sequence_length` and `drop_too_long` are for megatron-bridge only; `teacher`: sha256 of
    the signals whose values are in it."""

    name: FormName
    schema: pa.Schema
    meanings: Mapping[str, str]
    sequence_length: int | None = None
    drop_too_long: bool = False
    teacher: str | None = None

    @property
    def suffix(self) -> str:
        """The ending of the files. Megatron-Bridge recognises packed files by it."""
        if self.is_disk_folder:
            return ".arrow"
        return ".idx.parquet" if self.name == "megatron-bridge" else ".parquet"

    @property
    def is_disk_folder(self) -> bool:
        """Whether the export is a folder of `save_to_disk` instead of Parquet files."""
        return self.name == "llama-factory"

    def folder_of(self, split: str) -> str:
        """The folder of a split. LLaMA-Factory takes the split for evaluation by the name `validation`."""
        return hub_split(split) if self.is_disk_folder else split

    @property
    def unit(self) -> str:
        """The unit of a row of the export, for counts."""
        return "rows" if self.name == "megatron-bridge" else "documents"

    @property
    def options(self) -> dict[str, Any]:
        """What decides the bytes, beside the dataset. Empty for `parquet`, which was once the only form."""
        if self.name == "parquet":
            return {}
        if self.name in _COLUMNS:
            return {"form": self.name, **({} if self.teacher is None else {"teacher": self.teacher})}
        return {"form": self.name, "sequence_length": self.sequence_length, "drop_too_long": self.drop_too_long}


def export_form(
    name: FormName,
    content: Content,
    columns: Sequence[ExportColumn] = (),
    *,
    sequence_length: int | None = None,
    drop_too_long: bool = False,
    teacher: str | None = None,
) -> Form:
    """The form of an export of a dataset with this manifest `content`; `columns`: the columns that its family adds;
    `teacher`: sha256 of signals, for axolotl.

    Raises DatasetError if a document is longer than a row of `sequence_length` tokens and such documents are not
    dropped.
    """
    if name == "megatron-bridge":
        length = sequence_length or content.block_size or defaults.SEQUENCE_LENGTH
        longest = max((counts.longest for counts in content.totals.splits.values()), default=0)
        if longest > length and not drop_too_long:
            raise DatasetError(
                f"the longest document has {longest:,} tokens, a row holds {length:,}",
                remedy=f"--sequence-length {longest}, or leave such documents out and count them: --too-long drop",
            )
        return Form(
            name=name,
            schema=bridge_rows.SCHEMA,
            meanings=bridge_rows.MEANINGS,
            sequence_length=length,
            drop_too_long=drop_too_long,
        )
    spans = ", ".join(f"{number} {span}" for number, span in enumerate(content.span_names))
    meanings = {field: meaning for field, (_, meaning) in _FIELDS.items()} | {"span_id": spans}
    meanings |= {column.name: column.meaning for column in columns}
    if content.block_size is not None:
        meanings["input_ids"] = _BLOCK
    if name in _COLUMNS:
        names = _COLUMNS[name] + (_TARGETS if teacher is not None else ())
        schema = pa.schema([pa.field(field, _FIELDS[field][0], nullable=False) for field in names])
    else:
        left_out = {"completion_mask", *_TARGETS}
        left_out |= set() if "span" in content.arrays else {"span_id"}
        left_out |= {"attention_mask"} if content.block_size is None else set()
        fields = {field: kind for field, (kind, _) in _FIELDS.items() if field not in left_out}
        fields |= {column.name: column.kind for column in columns}
        schema = pa.schema([pa.field(field, kind, nullable=False) for field, kind in fields.items()])
    return Form(name=name, schema=schema, meanings=meanings, teacher=teacher)


def is_row_column(column: str) -> bool:
    """Whether the family adds this column from the row table."""
    return column not in _FIELDS and column not in bridge_rows.SCHEMA.names
