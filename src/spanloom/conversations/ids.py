"""Whether an id is new among millions, in 8 bytes each.

In: ids, in any order. Out: of each, whether it came before.
"""

from hashlib import blake2b
from typing import Any

import numpy as np


class SeenIds:
    """The ids so far: 8 bytes each, of a hash. Of 80 million, two have one hash with a chance of 1 in 5,000.

    New ones gather in a set and are then sorted into arrays, of which each is at least as long as the next.
    """

    RECENT = 1 << 16

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._sorted: list[np.ndarray[Any, np.dtype[np.uint64]]] = []

    def add(self, identity: str) -> bool:
        """Whether the id is new; it no longer is after this."""
        digest = int.from_bytes(blake2b(identity.encode(), digest_size=8).digest(), "big")
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
