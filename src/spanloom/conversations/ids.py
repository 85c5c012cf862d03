"""Detects duplicates among millions of ids or contents, in 8 bytes each.

In: ids or contents, in any order. Out: for each, whether it occurred before.
"""

from hashlib import blake2b
from typing import Any

import numpy as np


class SeenIds:
    """The ids, or the contents, so far, as 8 bytes of a hash each. Among 80 million, the chance that two share a hash
    is 1 in 5,000.

    New ids are collected in a set and then sorted into arrays; each array is at least as long as the next.
    """

    RECENT = 1 << 16

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._sorted: list[np.ndarray[Any, np.dtype[np.uint64]]] = []

    def add(self, identity: str | bytes) -> bool:
        """Adds the id. Returns whether it is new."""
        encoded = identity.encode() if isinstance(identity, str) else identity
        digest = int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big")
        if digest in self._recent or any(_holds(array, digest) for array in self._sorted):
            return False
        self._recent.add(digest)
        if len(self._recent) == self.RECENT:
            self._sort()
        return True

    def _sort(self) -> None:
        array = np.sort(np.fromiter(self._recent, dtype=np.uint64, count=len(self._recent)))
        while self._sorted and len(self._sorted[-1]) <= len(array):
            array = np.sort(np.concatenate([self._sorted.pop(), array]))
        self._sorted.append(array)
        self._recent = set()


def _holds(array: np.ndarray[Any, np.dtype[np.uint64]], digest: int) -> bool:
    place = int(np.searchsorted(array, np.uint64(digest)))
    return place < len(array) and int(array[place]) == digest
