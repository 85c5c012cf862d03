"""Reroute: the hidden states of harmful answers turn away from where they were.

    L_reroute = mean over layers l and answer tokens t of max(0, cos(h_l,t, h⁰_l,t))
    L         = c_s · L_reroute + c_r · L_retain,   c_s = α (1 − p / 2),   c_r = α p / 2

h are the model's hidden states, h⁰ those of a frozen copy from before training, p the progress from 0 to 1. A cosine of
0 is enough: then the old direction is gone. "Representation Rerouting" of "Improving Alignment and Robustness with
Circuit Breakers" (Zou et al., 2024, arXiv:2406.04313, algorithm 1; code: GraySwanAI/circuit-breakers).
The original of the tool-call samples takes it over tokens of the answer: `reroute_loss` in `src/training/trainer.py` of
memo-ozdincer/cb-for-agents.

    python docs/examples/losses/reroute.py data/megatron/toolcalls --steps 20
"""

from spanloom.errors import extra_for

with extra_for(__name__, "megatron"):
    import torch
    from retain_l2 import retain_l2
    from tiny_model import Losses, TinyModel, answer_tokens, main

    from spanloom.families.toolcalls.loader import Batch

ALPHA = 10.0


def reroute(hidden: torch.Tensor, frozen: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Hidden states `[L, B, S, D]`, the frozen model's, and the answer tokens `[B, S]` → scalar from 0 to 1."""
    cosine = torch.cosine_similarity(hidden, frozen, dim=-1)  # [L, B, S]
    return (cosine.relu() * mask).sum() / (len(hidden) * mask.sum().clamp(min=1))


def step(model: TinyModel, frozen: TinyModel, batch: dict[str, Batch], progress: float) -> Losses:
    """Rerouting weighs most at the beginning, retaining more and more."""
    harmful, kept = batch["harmful"], batch["retain"]
    away = reroute(model(harmful["tokens"])[1], frozen(harmful["tokens"])[1], answer_tokens(harmful))
    retain = retain_l2(model(kept["tokens"])[1], frozen(kept["tokens"])[1], answer_tokens(kept))
    total = ALPHA * ((1 - progress / 2) * away + progress / 2 * retain)
    return {"reroute": away, "retain": retain, "total": total}


if __name__ == "__main__":
    main(step)
