"""Triplet: answers to keep stay near their old states and far from harmful ones; harmful ones gather elsewhere.

    m         = mean of the harmful answers' states h, for each layer
    L_keep    = mean over answer tokens to keep of  max(0, d(k, k⁰) − d(k, m) + M_keep)
    L_harmful = mean over harmful answer tokens of  max(0, d(h, m) − d(h, h⁰) + M_harmful)
    d(x, y)   = ‖x − y‖₂ + 10 (1 − max(0, cos(x, y)))
    L         = A · L_keep + B · L_harmful + C · KL(frozen ‖ model on answers to keep)

k and h are the model's hidden states, k⁰ and h⁰ those of a frozen copy. From "Improving Large Language Model Safety
with Contrastive Representation Learning" (Simko et al., EMNLP 2025, arXiv:2506.11938; code:
`code/methods/triplet/trainer.py` of samuelsimko/crl-llm-defense, with its distance "mix"). The KL is over the answers
to keep and has no temperature; that code's adversarial hard negatives are left out. The weights and margins below are
only an example.

    python docs/examples/losses/triplet.py data/megatron/toolcalls --steps 20
"""

from spanloom.errors import extra_for

with extra_for(__name__, "megatron"):
    import torch
    from tiny_model import Losses, TinyModel, answer_tokens, main, retain_loss

    from spanloom.families.toolcalls.loader import Batch

KEEP, HARMFUL, KL = 0.5, 0.4, 0.3
KEEP_MARGIN, HARMFUL_MARGIN = 1.2, 1.6


def distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """d of each pair of states `[…, D]` → `[…]`."""
    return (left - right).norm(dim=-1) + 10 * (1 - torch.cosine_similarity(left, right, dim=-1).relu())


def center(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean state of the answer tokens, for each layer: `[L, B, S, D]` and `[B, S]` → `[L, 1, 1, D]`."""
    return (hidden * mask[..., None]).sum((1, 2), keepdim=True) / mask.sum().clamp(min=1)


def triplet(
    anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, mask: torch.Tensor, margin: float
) -> torch.Tensor:
    """States `[L, B, S, D]`, or `[L, 1, 1, D]` for all tokens alike, and the answer tokens `[B, S]` → scalar."""
    loss = (distance(anchor, positive) - distance(anchor, negative) + margin).relu()  # [L, B, S]
    return (loss * mask).sum() / (len(anchor) * mask.sum().clamp(min=1))


def step(model: TinyModel, frozen: TinyModel, batch: dict[str, Batch], progress: float) -> Losses:  # noqa: ARG001
    """The same weights from the first step to the last."""
    harmful, kept = batch["harmful"], batch["retain"]
    harmful_mask, kept_mask = answer_tokens(harmful), answer_tokens(kept)
    logits, states = model(kept["tokens"])
    old_logits, old_states = frozen(kept["tokens"])
    harmful_states = model(harmful["tokens"])[1]
    middle = center(harmful_states, harmful_mask)
    keep = triplet(states, old_states, middle, kept_mask, KEEP_MARGIN)
    away = triplet(harmful_states, middle, frozen(harmful["tokens"])[1], harmful_mask, HARMFUL_MARGIN)
    divergence = retain_loss(logits, kept, old_logits)
    return {"keep": keep, "harmful": away, "kl": divergence, "total": KEEP * keep + HARMFUL * away + KL * divergence}


if __name__ == "__main__":
    main(step)
