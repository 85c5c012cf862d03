"""One forward-backward pass over the micro-batches of a step, through Megatron's own schedule.

In: the model, a wire iterator. Out: gradients of L in the parameters, and the step's sums on every rank.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch.overrides import TorchFunctionMode

from spanloom.training.batch import ReadAhead
from spanloom.training.loss import SpanCounts, SpanWeights, span_loss_func


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """A step over all micro-batches and ranks. Tuples are in the order of the weights' names.

    `loss`: L. `span_losses`: mean loss of each span, 0 without tokens. `counts`: trained tokens of each span.
    `effective_weights`: weight of one token of each span, in tokens of a plain masked mean.
    """

    loss: float
    span_losses: tuple[float, ...]
    counts: tuple[int, ...]
    effective_weights: tuple[float, ...]


class _CpuForCuda(TorchFunctionMode):  # type: ignore[misc]  # torch is not followed by mypy here
    """Megatron's schedule makes one tensor on `device="cuda"` on every device. Here it is made on the CPU."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


def run_step(
    model: Any,
    ahead: ReadAhead,
    data_iterator: Iterator[Any] | None,
    weights: SpanWeights,
    *,
    micro_batches: int,
    shape: tuple[int, int],
    forward_only: bool = False,
) -> StepResult:
    """Runs one step. `shape`: (B, S) of a micro-batch.

    With `model.config.finalize_model_grads_func = average_gradients`, parameters then hold the gradient of L.
    """
    counts: SpanCounts | None = None

    def forward_step(iterator: Iterator[Any] | None, model: Any) -> tuple[torch.Tensor, Callable[..., Any]]:
        nonlocal counts
        batch, counts = ahead(iterator)
        assert counts is not None, "the only pipeline stage has the mask"
        losses = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])
        return losses, partial(span_loss_func, batch["loss_mask"], batch["span_id"], counts, weights)

    on_cpu = next(model.parameters()).device.type == "cpu"
    with _CpuForCuda() if on_cpu else contextlib.nullcontext():
        reports = get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=data_iterator,
            model=model,
            num_microbatches=micro_batches,
            micro_batch_size=shape[0],
            seq_length=shape[1],
            forward_only=forward_only,
        )
    assert counts is not None
    of_spans = [torch.stack([report[f"{name} loss"][0] for name in weights.names]) for report in reports]
    sums = torch.stack(of_spans).double().sum(0)
    dist.all_reduce(sums, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    means = sums / counts.tokens.clamp(min=1)
    return StepResult(
        loss=float((sums * counts.per_token(weights)).sum()),
        span_losses=tuple(means.tolist()),
        counts=tuple(counts.tokens.tolist()),
        effective_weights=tuple(counts.effective_weights(weights).tolist()),
    )


def average_gradients(models: list[Any], num_tokens: torch.Tensor | None, *_: Any, **__: Any) -> None:
    """Replaces the gradient reduction of Megatron's DDP and `finalize_model_grads`, for a model without them.

    Sums gradients and token counts over data-parallel ranks and divides, as for `calculate_per_token_loss`.
    """
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    assert num_tokens is not None, "the loss returns its count"
    total = num_tokens.clone()
    dist.all_reduce(total, group=group)
    for model in models:
        for parameter in model.parameters():
            gradient = gradient_of(parameter)
            if gradient is not None:
                dist.all_reduce(gradient, group=group)
                gradient.div_(total.clamp(min=1))


def gradient_of(parameter: torch.nn.Parameter) -> torch.Tensor | None:
    """The tensor that holds a parameter's gradient: `main_grad`, Megatron's fp32 one, otherwise torch's `grad`."""
    gradient: torch.Tensor | None = getattr(parameter, "main_grad", None)
    return parameter.grad if gradient is None else gradient
