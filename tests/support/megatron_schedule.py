"""A step of Megatron's own schedule on the CPU, with our batches and loss, and a small GPT of megatron-core for it.

In: a model, `ReadAhead`, micro-batches. Out: the gradient of L in the parameters, L, and the counts of the step. A
script of one's own has these lines, without what stands here for the CPU.
"""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from torch.overrides import TorchFunctionMode

from spanloom.training.batch import ReadAhead
from spanloom.training.loss import SpanCounts, SpanWeights, span_loss_func


class CausalAttention(torch.nn.Module):
    """Core attention over this rank's heads: `[S, B, heads, width]` three times → `[S, B, heads · width]`.

    Megatron's own requires CUDA, as its rotary positions do. The arguments are those of its layer spec.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        heads_first = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        mixed = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True)
        return mixed.permute(2, 0, 1, 3).reshape(*query.shape[:2], -1)


def gpt(
    *, layers: int, hidden: int, heads: int, vocab_size: int, sequence_length: int, seed: int, ranks: int = 1
) -> GPTModel:
    """A causal GPT with tied embeddings and no dropout, on `ranks` tensor-parallel ranks.

    Its gradients are reduced by `average_gradients`.
    """
    # The default tracker forks CUDA's random state around dropout. There is no dropout here; this one forks nothing.
    tensor_parallel.random.initialize_rng_tracker(inference_rng_tracker=True)
    torch.manual_seed(seed)
    of_cuda = ("gradient_accumulation_fusion", "bias_activation_fusion", "bias_dropout_fusion", "masked_softmax_fusion")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # megatron-core warns about one of its own defaults
        config = TransformerConfig(
            num_layers=layers,
            hidden_size=hidden,
            num_attention_heads=heads,
            attention_dropout=0.0,
            hidden_dropout=0.0,
            pipeline_dtype=torch.float32,
            tensor_model_parallel_size=ranks,
            use_cpu_initialization=True,
            calculate_per_token_loss=True,
            **dict.fromkeys(of_cuda, False),
        )
    config.finalize_model_grads_func = average_gradients
    layer = get_gpt_layer_local_spec()
    layer.submodules.self_attention.submodules.core_attention = CausalAttention
    return GPTModel(
        config,
        layer,
        vocab_size=vocab_size,
        max_sequence_length=sequence_length,
        position_embedding_type="learned_absolute",
        share_embeddings_and_output_weights=True,
    )


class CpuForCuda(TorchFunctionMode):
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
) -> tuple[float, tuple[int, ...]]:
    """Runs one step; `shape`: (B, S) of a micro-batch. Returns L, and the trained tokens of each span."""
    counts: SpanCounts | None = None

    def forward_step(iterator: Iterator[Any] | None, model: Any) -> tuple[torch.Tensor, Callable[..., Any]]:
        nonlocal counts
        batch, counts = ahead(iterator)
        assert counts is not None, "the only pipeline stage has the mask"
        losses = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])
        return losses, partial(span_loss_func, batch["loss_mask"], batch["span_id"], counts, weights)

    with CpuForCuda():
        reports = get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=data_iterator,
            model=model,
            num_microbatches=micro_batches,
            micro_batch_size=shape[0],
            seq_length=shape[1],
            forward_only=False,
        )
    assert counts is not None
    of_spans = [torch.stack([report[f"{name} loss"][0] for name in weights.names]) for report in reports]
    sums = torch.stack(of_spans).double().sum(0)
    dist.all_reduce(sums, group=parallel_state.get_data_parallel_group(with_context_parallel=True))
    return float((sums * counts.per_token(weights)).sum()), tuple(counts.tokens.tolist())


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
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad, group=group)
                parameter.grad.div_(total.clamp(min=1))
