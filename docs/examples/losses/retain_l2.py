"""Retain: the hidden states of answers to keep stay where they were.

    L_retain = mean over layers l and answer tokens t of ‖ h_l,t − h⁰_l,t ‖₂

h are the model's hidden states, h⁰ those of a frozen copy from before training. From "Improving Alignment and
Robustness with Circuit Breakers" (Zou et al., 2024, arXiv:2406.04313, algorithm 1; code: GraySwanAI/circuit-breakers).
The original of the tool-call samples takes it over tokens of the answer: `retain_loss` in `src/training/trainer.py` of
memo-ozdincer/cb-for-agents.

It pulls nowhere by itself. Here unlikelihood moves the model away from harmful answers, and this loss holds the rest.

    python docs/examples/losses/retain_l2.py data/megatron/toolcalls --steps 20
"""

from spanloom.errors import extra_for

with extra_for(__name__, "megatron"):
    import torch
    from tiny_model import Losses, TinyModel, answer_tokens, bounded_unlikelihood, main

    from spanloom.families.toolcalls.loader import Batch


def retain_l2(hidden: torch.Tensor, frozen: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Hidden states `[L, B, S, D]`, the frozen model's, and the answer tokens `[B, S]` → scalar."""
    distance = (hidden - frozen).norm(dim=-1)  # [L, B, S]
    return (distance * mask).sum() / (len(hidden) * mask.sum().clamp(min=1))


def step(model: TinyModel, frozen: TinyModel, batch: dict[str, Batch], progress: float) -> Losses:  # noqa: ARG001
    """The same weights from the first step to the last."""
    harmful, kept = batch["harmful"], batch["retain"]
    away = bounded_unlikelihood(model(harmful["tokens"])[0], harmful)
    retain = retain_l2(model(kept["tokens"])[1], frozen(kept["tokens"])[1], answer_tokens(kept))
    return {"away": away, "retain": retain, "total": away + retain}


if __name__ == "__main__":
    main(step)
