"""A GPT from megatron-core that runs on every device of torch.

In: its size. Out: `GPTModel` over Megatron's local layers, without TransformerEngine or Apex. Two of those layers
require CUDA on any device: core attention, replaced here by torch's own (flash attention on a GPU), and rotary
positions, replaced by learned ones.
"""

import warnings
from typing import Any

import torch
from megatron.core import tensor_parallel
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig


class CausalAttention(torch.nn.Module):  # type: ignore[misc]  # torch is not followed by mypy here
    """Core attention over this rank's heads: `[S, B, heads, width]` three times → `[S, B, heads · width]`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accepts what Megatron's layer spec passes (config, mask, groups); causal attention needs none of it."""
        super().__init__()

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        heads_first = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        mixed = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True)
        return mixed.permute(2, 0, 1, 3).reshape(*query.shape[:2], -1)


def gpt(
    *,
    layers: int,
    hidden: int,
    heads: int,
    vocab_size: int,
    sequence_length: int,
    dtype: torch.dtype,
    tensor_parallel_size: int,
    seed: int,
) -> GPTModel:
    """A causal GPT with tied embeddings and no dropout, initialised on the CPU: the same on every device.

    Megatron's parallel state must be initialised. Its schedule needs `model.config.finalize_model_grads_func`.
    """
    # The default tracker forks CUDA's random state around dropout. There is no dropout here; this one forks nothing.
    tensor_parallel.random.initialize_rng_tracker(inference_rng_tracker=True)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # megatron-core warns about one of its own defaults
        config = TransformerConfig(
            num_layers=layers,
            hidden_size=hidden,
            num_attention_heads=heads,
            attention_dropout=0.0,
            hidden_dropout=0.0,
            bf16=dtype == torch.bfloat16,
            params_dtype=dtype,
            pipeline_dtype=dtype,
            tensor_model_parallel_size=tensor_parallel_size,
            use_cpu_initialization=True,
            calculate_per_token_loss=True,
            gradient_accumulation_fusion=False,
            bias_activation_fusion=False,
            bias_dropout_fusion=False,
            masked_softmax_fusion=False,
        )
    layer = get_gpt_layer_local_spec()
    layer.submodules.self_attention.submodules.core_attention = CausalAttention
    model = GPTModel(
        config,
        layer,
        vocab_size=vocab_size,
        max_sequence_length=sequence_length,
        position_embedding_type="learned_absolute",
        share_embeddings_and_output_weights=True,
    )
    return model.to(dtype)  # Megatron leaves norms and positions in fp32
