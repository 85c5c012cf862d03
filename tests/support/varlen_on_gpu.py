"""THD attention on a GPU, held against each document alone: the bounds that packed samples give are those kernels'.

Two halves, so that the second needs torch alone, on a machine that may have nothing else:

    python -m support.varlen_on_gpu write batches.npz    a small dataset and its plan → batches, and their bounds
    python varlen_on_gpu.py check batches.npz            on the GPU: every kernel that is there, by values

Kernels: torch's mask (fp32), torch's own variable length, flash-attn, Transformer Engine's THD. Each is called with all
documents of a batch, and held against attention over each document alone. Prints a line a kernel; fails where they
differ.
"""

import importlib.util
import itertools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

LENGTH, BATCH, HEADS, WIDTH = 256, 4, 4, 64
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int], torch.Tensor]
"""query, key, value [T, HEADS, WIDTH], bounds int32 [documents + 1], the longest → [T, HEADS, WIDTH]."""


def write(out: Path) -> None:
    """Batches of packed samples: `cu_seqlens` [N, B, longest], and `bounds` of each batch, end to end, with `ends`."""
    from spanloom.dataset import manifest
    from spanloom.dataset.plan.format import PlanOptions
    from spanloom.dataset.plan.writer import make_plan
    from spanloom.training.packed import PackedDataset, collate_packed, varlen
    from support.token_datasets import random_shards, write_dataset

    lengths = np.random.default_rng(0).integers(2, 400, 80).tolist()
    options = {"strategy": "best-fit", "seed": 0, "long": "window", "question_tokens": LENGTH // 2, "multiple_of": 8}
    with tempfile.TemporaryDirectory() as folder:
        root = write_dataset(Path(folder, "root"), {"train": random_shards(0, [lengths])})
        content = manifest.read(root).content
        plan = make_plan(root, content, Path(folder, "plan"), PlanOptions(sequence_length=LENGTH, **options))  # type: ignore[arg-type]
        dataset = PackedDataset(plan.folder)
        batches = [
            collate_packed([dataset[first + row] for row in range(BATCH)])
            for first in range(0, len(dataset) - BATCH + 1, BATCH)
        ]
        bounds_of_batches = [varlen(batch["cu_seqlens"], LENGTH) for batch in batches]
        np.savez(
            out,
            bounds=torch.cat([bounds for bounds, _ in bounds_of_batches]).numpy(),
            ends=np.cumsum([bounds.numel() for bounds, _ in bounds_of_batches]),
            longest=np.array([longest for _, longest in bounds_of_batches]),
            positions=torch.stack([batch["position_ids"].flatten() for batch in batches]).numpy(),
        )


def check(file: Path, device: str = "cuda") -> list[str]:
    """A line for each kernel that is there. Raises AssertionError where a document sees another."""
    torch.backends.cuda.matmul.allow_tf32 = False
    with np.load(file) as arrays:
        batches = np.split(arrays["bounds"], arrays["ends"][:-1])
        longest, positions = arrays["longest"].tolist(), arrays["positions"]
    lines = []
    for name, (attention, dtype) in kernels(device).items():
        furthest = documents = 0.0
        for number, bounds in enumerate(batches):
            # The bounds are where positions begin again.
            assert np.flatnonzero(positions[number] == 0).tolist() == bounds[:-1].tolist()
            torch.manual_seed(number)
            parts = [torch.randn(BATCH * LENGTH, HEADS, WIDTH, device=device, dtype=dtype) for _ in range(3)]
            on_device = torch.from_numpy(bounds).to(device)
            together = attention(*parts, on_device, longest[number])
            for begin, end in itertools.pairwise(bounds.tolist()):
                apart = alone(*(part[begin:end] for part in parts))
                furthest = max(furthest, float((together[begin:end].float() - apart).abs().max()))
                documents += 1
        lines.append(f"{name}: {documents:.0f} documents, largest difference {furthest:.1e}")
        print(lines[-1], flush=True)
        assert furthest < TOLERANCE[dtype], lines[-1]
    return lines


def alone(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Causal attention of one document in float32, written out."""
    scores = torch.einsum("ihd,jhd->hij", query.float(), key.float()) / WIDTH**0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return torch.einsum("hij,jhd->ihd", scores.masked_fill(hidden, float("-inf")).softmax(-1), value.float())


def kernels(device: str) -> dict[str, tuple[Attention, torch.dtype]]:
    """Name → attention over bounds, and the type it is tried in."""
    attentions: dict[str, tuple[Attention, torch.dtype]] = {"mask": (_mask, torch.float32)}
    if device == "cuda":
        attentions["torch varlen"] = (_torch_varlen, torch.bfloat16)
        if importlib.util.find_spec("flash_attn"):
            attentions["flash-attn"] = (_flash_attn, torch.bfloat16)
        if importlib.util.find_spec("transformer_engine"):
            attentions["Transformer Engine THD"] = (_transformer_engine, torch.bfloat16)
    return attentions


def _mask(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor, _: int) -> torch.Tensor:
    of = torch.searchsorted(bounds[1:].long(), torch.arange(query.shape[0], device=query.device), right=True)
    allowed = (of[:, None] == of[None]).tril()
    heads_first = (part.transpose(0, 1)[None] for part in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(*heads_first, attn_mask=allowed)[0].transpose(0, 1)


def _torch_varlen(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor, longest: int
) -> torch.Tensor:
    if importlib.util.find_spec("torch.nn.attention.varlen"):
        from torch.nn.attention.varlen import varlen_attn

        try:
            return varlen_attn(query, key, value, bounds, bounds, longest, longest, window_size=(-1, 0))
        except TypeError:  # the first versions
            return varlen_attn(query, key, value, bounds, bounds, longest, longest, is_causal=True)
    flash = torch.ops.aten._flash_attention_forward
    return flash(query, key, value, bounds, bounds, longest, longest, 0.0, True, False)[0]


def _flash_attn(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor, longest: int
) -> torch.Tensor:
    from flash_attn import flash_attn_varlen_func

    return flash_attn_varlen_func(query, key, value, bounds, bounds, longest, longest, causal=True)


def _transformer_engine(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor, longest: int
) -> torch.Tensor:
    """As Megatron's TEDotProductAttention calls it for `packed_seq_params` with qkv_format thd."""
    from transformer_engine.pytorch import DotProductAttention

    attention = DotProductAttention(HEADS, WIDTH, attention_dropout=0.0, qkv_format="thd")
    options = {"cu_seqlens_q": bounds, "cu_seqlens_kv": bounds, "max_seqlen_q": longest, "max_seqlen_kv": longest}
    out = attention(query, key, value, qkv_format="thd", attn_mask_type="padding_causal", **options)
    return out.reshape(query.shape)


if __name__ == "__main__":
    what, place = sys.argv[1:]
    write(Path(place)) if what == "write" else check(Path(place))
