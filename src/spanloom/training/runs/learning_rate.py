"""The learning rate of a step, from its number alone. Pure: no torch, no Megatron."""

import math


def learning_rate_at(step: int, *, peak: float, warmup: int, steps: int) -> float:
    """Rises over `warmup` steps, then falls along a cosine to a tenth of the peak at the last step."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return peak * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))
