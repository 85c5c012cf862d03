"""The loss against a teacher inside Megatron-LM's own training loop.

In: the stock `get_batch`, micro-batches with the keys `teacher_…`, the logits of the last pipeline stage. Out: the same
calls, whose loss per token is `TeacherLoss`; `megatron_step` makes the loss of the step of it.

Megatron-LM hands only its own keys from tensor-parallel rank 0 to the others, and cuts only these for context
parallelism. So the signals are taken from the iterator's batch, broadcast and cut here. The model gets them as an
attribute of `labels`, which it passes on to its loss unchanged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state

from spanloom.errors import DatasetError
from spanloom.training.distillation.loss import TeacherLoss

_SIGNALS = "spanloom_teacher"
"""Attribute of a micro-batch's labels: its signals."""

_KEYS = ("teacher_ids", "teacher_logprobs", "teacher_rest", "teacher_mask")
"""What the loss takes. `teacher_own` stays in the loader."""


class TeacherInStep:
    """Hands the signals of each micro-batch to the loss of the model."""

    def __init__(self, loss: TeacherLoss, k: int, *, labels: int, mask: int) -> None:
        """`k`: tokens a label; `labels`, `mask`: indices among the values of `get_batch`."""
        self._loss, self._k, self._labels, self._mask = loss, k, labels, mask

    def read(
        self, stock: Callable[..., Sequence[Any]], data_iterator: Any, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """The stock `values`, the `loss_mask` of the labels that have signals, and `labels`; both None on stages
        without a loss."""
        taken = None if data_iterator is None else _Taken(data_iterator)
        values = stock(taken, *args, **kwargs)
        mask, labels = values[self._mask], values[self._labels]
        if mask is None or labels is None:
            return {"values": values, "loss_mask": None, "labels": None}
        signals = self._received({} if taken is None else taken.signals, mask)
        if bool(((signals["teacher_mask"] > 0) & (mask == 0)).any()):
            raise DatasetError(
                "signals lie at labels that are not trained",
                remedy="this Megatron-LM cuts its batches in a way that the loss against a teacher does not know",
            )
        setattr(labels, _SIGNALS, signals)
        return {"values": values, "loss_mask": mask * signals["teacher_mask"], "labels": labels}

    def model_loss(self, stock: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """`compute_language_model_loss` of the model: labels [B, S], logits [S, B, this rank's part of V] → [B, S].

        Labels without signals are those of other losses, such as multi-token prediction: they keep the stock loss.
        """

        def compute_language_model_loss(model: Any, labels: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
            signals = getattr(labels, _SIGNALS, None)
            if not signals:
                return stock(model, labels, logits)
            setattr(labels, _SIGNALS, {})
            group = parallel_state.get_tensor_model_parallel_group()
            losses = self._loss.of(
                logits,
                labels.transpose(0, 1),
                {name: values.transpose(0, 1) for name, values in signals.items()},
                group=group,
                first=dist.get_rank(group) * logits.shape[-1],
            )
            return losses.transpose(0, 1).contiguous()

        return compute_language_model_loss

    @staticmethod
    def check_used(labels: torch.Tensor) -> None:
        """Raises DatasetError if the model computed the loss of these labels without their signals."""
        if getattr(labels, _SIGNALS, None):
            raise DatasetError(
                "the model computed its loss elsewhere than in compute_language_model_loss",
                remedy="train against a teacher without fused losses of linear layer and cross entropy",
            )

    def _received(self, own: Mapping[str, torch.Tensor], mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """Signals of the shape of `mask`, [B, S] or [B, S, k], on every rank of the tensor-parallel group."""
        group = parallel_state.get_tensor_model_parallel_group()
        parts = parallel_state.get_context_parallel_world_size()
        whole = (mask.shape[0], mask.shape[1] * parts)
        source = dist.get_global_rank(group, 0)
        signals = {}
        for name in _KEYS:
            shape = (*whole, self._k) if name in _KEYS[:2] else whole
            dtype = torch.int64 if name == "teacher_ids" else torch.float32
            values = torch.empty(shape, dtype=dtype, device=mask.device)
            if dist.get_rank() == source:
                values = own[name].to(mask.device).reshape(shape).contiguous()
            if dist.get_world_size(group) > 1:
                dist.broadcast(values, source, group=group)
            signals[name] = context_part(values, parts, parallel_state.get_context_parallel_rank())
        return signals


def context_part(values: torch.Tensor, parts: int, rank: int) -> torch.Tensor:
    """What a rank of `parts` context-parallel ones has of [B, S, …]: of 2 · `parts` pieces the piece `rank` and the one
    as far from the end, as Megatron cuts its own keys."""
    if parts == 1:
        return values
    pieces = values.chunk(2 * parts, dim=1)
    return torch.cat([pieces[rank], pieces[2 * parts - 1 - rank]], dim=1)


class _Taken:
    """A data iterator that keeps the signals of the batch that it gave last, and gives the batch without them."""

    def __init__(self, iterator: Iterator[Mapping[str, Any]]) -> None:
        self._iterator = iterator
        self.signals: dict[str, torch.Tensor] = {}

    def __iter__(self) -> "_Taken":
        return self

    def __next__(self) -> dict[str, Any]:
        batch = next(self._iterator)
        self.signals = {name: batch[name] for name in _KEYS}
        return {name: values for name, values in batch.items() if not name.startswith("teacher_")}
