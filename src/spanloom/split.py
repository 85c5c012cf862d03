"""The split rule: which documents are held out for validation.

In: an id and a fraction. Out: `train` or `valid`, decided by the id alone, so that neither the order of the rows nor
the other rows matter, and raising the fraction never moves a document from valid back to train.
"""

from collections.abc import Iterable
from decimal import Context, Decimal
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

TRAIN, VALID = "train", "valid"
SPLITS = (TRAIN, VALID)


def split_rule(id_column: str) -> str:
    """The rule as a manifest words it, for ids from this column of the source."""
    return f"blake2b-64({id_column}) < int(Decimal(valid_fraction) * 2**64)"


def valid_threshold(valid_fraction: float) -> int:
    """Digests below this number are valid. Exact in decimal: 0.1 gives 1844674407370955161, not the float's …264.

    Raises ValueError outside [0, 1].
    """
    if not 0 <= valid_fraction <= 1:
        raise ValueError(f"valid_fraction must be in [0, 1], got {valid_fraction}")
    # An own decimal context: the caller's decimal settings must not move a document.
    return int(Context(prec=28).multiply(Decimal(str(valid_fraction)), Decimal(2**64)))


def id_digests(ids: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Ids as numbers in [0, 2**64): blake2b with 8 bytes of digest over UTF-8, big-endian. Returns uint64 [N]."""
    joined = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in ids)
    return np.frombuffer(joined, dtype=">u8").astype(np.uint64)


def is_valid(digests: npt.NDArray[np.uint64], valid_fraction: float) -> npt.NDArray[np.bool_]:
    """Which digests fall into valid. Args: uint64 [N]. Returns bool [N]."""
    threshold = valid_threshold(valid_fraction)
    if threshold >= 2**64:  # does not fit in uint64: everything is below it
        return np.ones(digests.size, dtype=np.bool_)
    return digests < np.uint64(threshold)


def empty_valid(documents: int, valid_fraction: float) -> str:
    """The warning of a build whose validation split is empty, with a larger fraction: a tenth at least."""
    larger = 0.1 if valid_fraction < 0.1 else min(1.0, 2 * valid_fraction)
    return (
        f"warning: the validation split is empty: the ids of {documents:,} documents are all above --valid-fraction "
        f"{valid_fraction}; to hold out about {max(1, round(documents * larger)):,}, build again with --valid-fraction "
        f"{larger:g} --overwrite"
    )


def among(digests: npt.NDArray[np.uint64], ordered: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which digests are in `ordered`, a long sorted array: by binary search, without sorting it again for each batch.

    Args: uint64 [N]; uint64 [M], sorted. Returns bool [N].
    """
    if not ordered.size:
        return np.zeros(digests.size, dtype=np.bool_)
    is_member: npt.NDArray[np.bool_] = (
        ordered[np.minimum(np.searchsorted(ordered, digests), ordered.size - 1)] == digests
    )
    return is_member
