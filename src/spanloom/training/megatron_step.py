"""The loss per span inside Megatron-LM's own training loop: replacements for its batch, loss and logged values.

In: the stock `get_batch` and `loss_func`, and micro-batches of `SpanWireGPTDataset`. Out: functions with the same
signatures. Pipeline stages, virtual stages, timers, the checks for NaN and spikes stay Megatron's.

A step's micro-batches are read before its first forward pass (`batch.ReadAhead`), since the mean over a span needs the
number of its tokens in the whole step. The schedule receives the number of micro-batches as an argument, in training
and in evaluation.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from megatron.core import parallel_state

from spanloom.errors import DatasetError
from spanloom.training.batch import Batch, ReadAhead
from spanloom.training.distillation.megatron import TeacherInStep
from spanloom.training.loss import SpanCounts, SpanWeights, span_report, span_sums

_STEP = "spanloom_step"
"""Attribute of a micro-batch's loss mask: its span ids, the counts of its step, and with a teacher its
labels. `loss_func` gets only the mask."""


class SpanStep:
    """Holds the state of a step from reading its batches until its loss."""

    def __init__(self, weights: SpanWeights, mask_place: int, teacher: TeacherInStep | None = None) -> None:
        """`mask_place`: index of the loss mask among the values of `get_batch`. `teacher`: the loss is against it."""
        self._weights, self._mask_place, self._teacher = weights, mask_place, teacher
        self._micro_batches = 0
        self._ahead: dict[int | None, ReadAhead] = {}  # by virtual pipeline stage
        self._counts: SpanCounts | None = None
        self._evaluated: SpanCounts | None = None

    def schedule(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        """`get_forward_backward_func` whose schedules record how many micro-batches they are called with."""

        def get_forward_backward_func(*args: Any, **kwargs: Any) -> Callable[..., Any]:
            forward_backward = stock(*args, **kwargs)

            def counted(*args: Any, **kwargs: Any) -> Any:
                self._begin(kwargs["num_microbatches"])
                result = forward_backward(*args, **kwargs)
                left = sum(ahead.waiting for ahead in self._ahead.values())
                if left:
                    raise DatasetError(
                        f"{left} micro-batches of this step were read and not trained on",
                        remedy="this Megatron-LM takes batches in a way that the loss per span does not know",
                    )
                if kwargs.get("forward_only") and self._counts is not None:
                    self._evaluated = self._counts if self._evaluated is None else self._evaluated + self._counts
                return result

            return counted

        return get_forward_backward_func

    def get_batch(self, stock: Callable[..., Sequence[Any]]) -> Callable[..., list[Any]]:
        """`get_batch` that reads a step ahead. It returns the stock values, with a loss mask of 0 and 1."""

        def read(data_iterator: Any, *args: Any, **kwargs: Any) -> Batch:
            if self._teacher is not None:
                return self._teacher.read(stock, data_iterator, *args, **kwargs)
            values = stock(data_iterator, *args, **kwargs)
            return {"values": values, "loss_mask": values[self._mask_place]}

        def get_batch(data_iterator: Any, *args: Any, **kwargs: Any) -> list[Any]:
            stage = kwargs.get("vp_stage", args[0] if args else None)
            if stage not in self._ahead:
                self._ahead[stage] = ReadAhead(
                    lambda iterator: read(iterator, *args, **kwargs),
                    lambda: self._micro_batches,
                    lambda: parallel_state.get_data_parallel_group(with_context_parallel=True),
                    spans=len(self._weights),
                )
            batch, counts = self._ahead[stage](data_iterator)
            values = list(batch["values"])
            if counts is not None:
                mask = values[self._mask_place] = batch["loss_mask"]
                setattr(mask, _STEP, (batch["span_id"], counts, batch.get("labels")))
                self._counts = counts
            return values

        return get_batch

    def loss_func(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        """`loss_func` for L. The stock function sums, with token weights as the mask, and checks the result."""

        def loss_func(loss_mask: torch.Tensor, output_tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if not hasattr(loss_mask, _STEP):
                raise DatasetError(
                    "loss_func was handed another loss mask than the one that get_batch returned",
                    remedy="use a Megatron-LM that docs/training/megatron-lm.md names; this one is another",
                )
            span_id, counts, labels = getattr(loss_mask, _STEP)
            if self._teacher is not None:
                self._teacher.check_used(labels)
            effective = counts.effective_weights(self._weights).float()
            of_span = torch.cat([effective.new_zeros(1), effective])  # context and untrained labels have weight 0
            loss = stock(of_span[(span_id * loss_mask).long()], output_tensor, *args, **kwargs)[0]
            own = SpanCounts.of(loss_mask, span_id, len(self._weights))
            sums = span_sums(output_tensor.detach().view_as(loss_mask), loss_mask, span_id, len(self._weights))
            return loss, own.tokens.sum().to(torch.int32), span_report(sums, own, counts, self._weights)

        return loss_func

    def evaluate(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        """`evaluate` whose figures cover all its iterations together, as if they were one step."""

        def evaluate(*args: Any, **kwargs: Any) -> Any:
            self._begin_evaluation()
            result = stock(*args, **kwargs)
            figures, counts = result[0], self._evaluated
            if figures and counts is not None:  # only the last pipeline stage has figures
                losses = torch.stack([figures[f"{name} loss"].double() for name in self._weights.names])
                weights = self._weights.on(losses.device)
                figures["weighted loss"] = (losses * weights).sum()
                for name, tokens, weight in zip(
                    self._weights.names, counts.tokens, counts.effective_weights(self._weights), strict=True
                ):
                    figures |= {f"{name} tokens": tokens.float(), f"{name} weight": weight.float()}
            return result

        return evaluate

    def _begin(self, micro_batches: int) -> None:
        self._micro_batches, self._counts = micro_batches, None

    def _begin_evaluation(self) -> None:
        self._evaluated = None
