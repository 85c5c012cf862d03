"""Log-probabilities and token ids ↔ the integers that are stored.

In: float32 log-probabilities, int32 ids. Out: uint16 and uint8, and back. A log-probability x is stored as c with
x = −32 · (c / 65535)²: the nearer to 0, the finer. Half a step is below 1e-8 at 0 and 4.9e-4 at −32; what is lower is
stored as −32.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

LOWEST = -32.0
CODING = 2e-3
"""By how much a stored sum of probabilities may be off, and two stored values of one token."""

_STEPS = 65535
_TABLE = (LOWEST * (np.arange(_STEPS + 1) / _STEPS) ** 2).astype(np.float32)

Codes = npt.NDArray[np.uint16]
Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]


def encode_logprobs(values: npt.NDArray[Any]) -> Codes:
    """Log-probabilities, at most 0, any shape → uint16 of that shape."""
    scaled = np.sqrt(np.clip(values, LOWEST, 0.0) / np.float32(LOWEST))
    codes: Codes = np.rint(scaled * np.float32(_STEPS)).astype(np.uint16)
    return codes


def decode_logprobs(codes: Codes) -> Floats:
    """float32 of the shape of `codes`, which are uint16."""
    values: Floats = _TABLE[codes]
    return values


def encode_ids(ids: Ids) -> tuple[Codes, npt.NDArray[np.uint8]]:
    """The lower 16 bits of ids below 2^24, and the upper 8."""
    return (ids & 0xFFFF).astype(np.uint16), (ids >> 16).astype(np.uint8)


def decode_ids(low: Codes, high: npt.NDArray[np.uint8] | None) -> Ids:
    """int32 ids. `high`: None for a vocabulary of at most 65,536."""
    ids = low.astype(np.int32)
    if high is not None:
        ids |= high.astype(np.int32) << 16
    return ids
