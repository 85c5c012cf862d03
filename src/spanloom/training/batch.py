"""Sends spans to every rank inside the loss mask, and reads the micro-batches of a step ahead.

In: micro-batches of `[B, S]` tensors. Out: the same on every rank, with `span_id`, and the counts of the whole step.

Megatron-LM sends fixed keys from tensor-parallel rank 0 to the other ranks (tokens, labels, loss_mask, attention_mask,
position_ids) and drops all other keys. So the span of a trained label is sent as the value of `loss_mask`: 0 for an
untrained label, otherwise the span id. Context-parallel slicing cuts it like any mask.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist

from spanloom.errors import DatasetError
from spanloom.training.loss import SpanCounts

Batch = dict[str, Any]
WIRE_KEYS = ("tokens", "labels", "position_ids")
"""int64 keys that are broadcast together with `loss_mask`."""


def split_wire(wire: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`loss_mask · span_id` (0: not trained, otherwise the span id) → float32 loss mask of 0 and 1, int64 span id.
    Any shape. Exact in any float type."""
    return (wire > 0).to(torch.float32), wire.to(torch.int64)


def broadcast_batch(
    batch: Mapping[str, torch.Tensor] | None, *, shape: tuple[int, int], source: int, group: Any, device: torch.device
) -> Batch:
    """Broadcasts a wire batch to every rank of a tensor-parallel group.

    Args: batch, given only on rank `source` (a global rank); shape, (B, S), known on every rank.
    """
    received: Batch = {}
    for key in (*WIRE_KEYS, "loss_mask"):
        dtype = torch.float32 if key == "loss_mask" else torch.int64
        tensor = torch.empty(shape, dtype=dtype, device=device) if batch is None else batch[key].to(device).contiguous()
        if dist.get_world_size(group) > 1:
            dist.broadcast(tensor, source, group=group)
        received[key] = tensor
    return received


class ReadAhead:
    """Reads all micro-batches of a step, then returns them one by one with the span counts of that step.

    The mean over a span needs the number of its tokens in the whole step before the first backward pass. Reading ahead
    costs little memory: a micro-batch holds only integers.
    """

    def __init__(
        self,
        get_batch: Callable[[Any], Batch],
        num_microbatches: Callable[[], int],
        group: Callable[[], Any],
        *,
        spans: int,
    ) -> None:
        """
        get_batch         data iterator → batch with a `loss_mask` as `SpanWireGPTDataset` makes it, on this rank's
                          device, already cut for context parallelism; `loss_mask` is None on stages without one
        num_microbatches  micro-batches in a step, on this rank
        group             the data-parallel group, including context parallelism: ranks that read different data
        spans             number of trained spans
        """
        self._get_batch, self._num_microbatches, self._group = get_batch, num_microbatches, group
        self._spans = spans
        self._waiting: dict[int, deque[Batch]] = {}
        self._counts: dict[int, SpanCounts | None] = {}

    def __call__(self, data_iterator: Iterator[Any] | None) -> tuple[Batch, SpanCounts | None]:
        """The next micro-batch, its wire split into `loss_mask` and `span_id`, and the counts of its step."""
        key = id(data_iterator)  # interleaved pipeline stages and evaluation have their own iterators
        waiting = self._waiting.setdefault(key, deque())
        if not waiting:
            self._counts[key] = self._read_step(data_iterator, waiting)
        return waiting.popleft(), self._counts[key]

    @property
    def waiting(self) -> int:
        """How many micro-batches were read and not returned yet."""
        return sum(map(len, self._waiting.values()))

    def _read_step(self, data_iterator: Iterator[Any] | None, waiting: deque[Batch]) -> SpanCounts | None:
        counts = None
        for _ in range(self._num_microbatches()):
            batch = {"span_id": None, **self._get_batch(data_iterator)}
            if (wire := batch.get("loss_mask")) is not None:
                if batch["span_id"] is not None:
                    raise DatasetError(
                        "this batch holds span_id beside loss_mask",
                        remedy="read ahead over SpanWireGPTDataset, whose loss_mask carries the span",
                    )
                batch["loss_mask"], batch["span_id"] = split_wire(wire)
                own = SpanCounts.of(batch["loss_mask"], batch["span_id"], self._spans)
                counts = own if counts is None else counts + own
            waiting.append(batch)
        return None if counts is None else counts.all_reduced(self._group())
