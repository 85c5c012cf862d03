"""Loss of each span by a column of the row table, such as language or exercise.

In: the model, the documents of valid, a column name. Out: `Group`s, over all ranks.

Documents are read one by one from their beginning, up to the sequence length, not concatenated as in training, so a
document's loss does not depend on its neighbours. Each document is forwarded by one data-parallel rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
import torch.distributed as dist
from megatron.core import parallel_state

from spanloom.dataset.manifest import Content
from spanloom.dataset.root.layout import rows_file
from spanloom.dataset.rows.table import row_batches
from spanloom.errors import DatasetError
from spanloom.split import VALID
from spanloom.training.loss import SpanCounts, span_sums
from spanloom.training.pytorch import DocumentDataset, collate

MISSING = "(none)"
"""The group of documents whose value is null."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Documents with one value of the column. Tuples are in the order of span ids, from 1; loss None if no tokens."""

    value: str
    documents: int
    losses: tuple[float | None, ...]
    tokens: tuple[int, ...]


def values_of(content: Content, root: Path, column: str, *, documents: int) -> list[str]:
    """The column's value for each of the first `documents` documents of valid, in the order of `DocumentDataset`.

    Raises DatasetError if a row table lacks the column, ArtifactError if one cannot be read.
    """
    values: list[str] = []
    wanted = pa.schema([pa.field(column, pa.string())])
    for shard in content.shards:
        if VALID not in shard.splits or not shard.splits[VALID].sequences or len(values) >= documents:
            continue
        path = rows_file(root, VALID, shard.shard)
        for batch in row_batches(path, wanted):
            if column not in batch.schema.names:
                raise DatasetError(
                    f"the row table has no column {column}",
                    where=str(path),
                    remedy="name one of its text columns, such as language or exercise; docs/format.md lists them",
                )
            values += [MISSING if value is None else value for value in batch.column(0).to_pylist()]
    return values[:documents]


def losses_by(
    model: Any, root: Path, values: Sequence[str], *, spans: int, sequence_length: int, micro_batch: int, device: Any
) -> list[Group]:
    """One group per value, over the first `len(values)` documents. Call on all ranks, with the model in eval mode."""
    dataset = DocumentDataset(root, VALID, max_length=sequence_length)
    names = sorted(set(values))
    place = {name: number for number, name in enumerate(names)}
    sums = torch.zeros(len(names), spans, dtype=torch.float64, device=device)
    tokens = torch.zeros(len(names), spans, dtype=torch.int64, device=device)
    replica, replicas = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
    mine = range(replica, len(values), replicas)
    with torch.no_grad():
        for first in range(0, len(mine), micro_batch):
            numbers = mine[first : first + micro_batch]
            batch = {name: value.to(device) for name, value in collate([dataset[n] for n in numbers]).items()}
            positions = torch.arange(batch["tokens"].shape[1], device=device).expand_as(batch["tokens"])
            # Padding follows a document, so causal attention needs no mask for it.
            losses = model(batch["tokens"], positions, None, labels=batch["labels"])
            for row, number in enumerate(numbers):
                mask, span = batch["loss_mask"][row], batch["span_id"][row]
                sums[place[values[number]]] += span_sums(losses[row], mask, span, spans)
                tokens[place[values[number]]] += SpanCounts.of(mask, span, spans).tokens
    group = parallel_state.get_data_parallel_group()
    dist.all_reduce(sums, group=group)
    dist.all_reduce(tokens, group=group)
    return [
        Group(
            value=name,
            documents=values.count(name),
            losses=tuple(
                float(total) / int(count) if count else None for total, count in zip(sums[n], tokens[n], strict=True)
            ),
            tokens=tuple(tokens[n].tolist()),
        )
        for n, name in enumerate(names)
    ]
