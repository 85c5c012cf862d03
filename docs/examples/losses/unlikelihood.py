"""Unlikelihood: harmful answers become unlikely, answers to keep are learned as usual.

L = mean of -log(1 - p) over the labels of harmful answers + weighted cross-entropy of those to keep

python docs/examples/losses/unlikelihood.py data/megatron/toolcalls --steps 20
"""

from spanloom.errors import extra_for

with extra_for(__name__, "megatron"):
    from tiny_model import Losses, TinyModel, bounded_unlikelihood, main, retain_loss

    from spanloom.families.toolcalls.loader import Batch


def step(model: TinyModel, frozen: TinyModel, batch: dict[str, Batch], progress: float) -> Losses:  # noqa: ARG001
    """The same weights from the first step to the last."""
    harmful, kept = batch["harmful"], batch["retain"]
    away = bounded_unlikelihood(model(harmful["tokens"])[0], harmful)
    retain = retain_loss(model(kept["tokens"])[0], kept)
    return {"harmful": away, "retain": retain, "total": away + retain}


if __name__ == "__main__":
    main(step)
