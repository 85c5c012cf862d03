"""Packs units into sequences of one length. Arrays in, arrays out.

In: the size of each unit (a document, or a window of one), the length of a sequence. Out: groups of units, one group
per sequence, whose sizes sum to at most that length. Every unit of size 1 or more is in exactly one group.

    sizes [5 3 2 5 1], length 7
    best fit      [0 2] [3 4] [1]    the largest first, each into the fullest sequence with room for it
    sequential    [0] [1 2] [3 4]    in their order; a new sequence if the next unit does not fit

Best fit works on the histogram of sizes: sequences with the same fill are one entry with a count. Its time is linear in
the number of units, plus a term that depends only on the length. Its groups are as full as those of best-fit decreasing
unit by unit.
"""

import hashlib
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Sizes = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
Units = npt.NDArray[np.int32]
Groups = tuple[Units, npt.NDArray[np.int64]]
"""Units of K sequences, concatenated, int32 [T]; the number of units of each sequence, int64 [K], sum = T."""

_CHUNK = 1 << 21
"""Units processed at once: apart from the sizes and one int32 per unit, memory does not grow with their number."""

_Kind = tuple[int, int, "_Kind | None"]
"""The fill of a sequence, as a linked list: (size, number of units of that size, earlier entries)."""


def size_dtype(length: int) -> np.dtype[np.uint16] | np.dtype[np.uint32]:
    """The smallest dtype for sizes up to `length`; NumPy sorts 16-bit values in linear time."""
    return np.dtype(np.uint16) if length <= np.iinfo(np.uint16).max else np.dtype(np.uint32)


def best_fit(sizes: Sizes, length: int, *, seed: int) -> Iterator[Groups]:
    """Groups by best-fit decreasing. `sizes` [N], all ≤ `length`; units of size 0 are left out.

    `seed` decides the order of units of equal size. The same arguments give the same groups with any version of NumPy.
    """
    counts = np.zeros(length + 1, dtype=np.int64)
    for first in range(0, sizes.size, _CHUNK):
        counts += np.bincount(sizes[first : first + _CHUNK], minlength=length + 1)
    order = _by_size(sizes, counts)
    next_of = np.cumsum(counts) - counts
    next_of -= counts[0]  # `order` has no units of size 0
    for size in (np.flatnonzero(counts[1:]) + 1).tolist():
        members = order[next_of[size] : next_of[size] + counts[size]]
        members[:] = members[_affine(members.size, seed, size)]
    for count, kind in kinds_of_sequences(counts, length):
        for first in range(0, count, max(1, _CHUNK // length)):
            rows = min(count - first, max(1, _CHUNK // length))
            columns = []
            for size, copies in kind:
                begins = next_of[size]
                columns.append(order[begins : begins + rows * copies].reshape(rows, copies))
                next_of[size] += rows * copies
            groups = np.concatenate(columns, axis=1)
            yield groups.reshape(-1), np.full(rows, groups.shape[1], dtype=np.int64)


def kinds_of_sequences(counts: npt.NDArray[np.int64], length: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """The fills of sequences by best-fit decreasing: `(number of sequences, [(size, units of that size), …])`, sizes
    descending.

    `counts` int64 [length + 1]: units of each size. A unit goes into the sequence with the least sufficient space.
    After that, this sequence still has the least space, so it takes as many units of this size as fit.
    """
    # Free space → fills of open sequences, with counts. Bit s of `spaces`: there are sequences with free space s.
    open_by_space: dict[int, list[tuple[int, _Kind]]] = {}
    spaces = 0
    full_kinds: list[tuple[int, _Kind]] = []

    def put(space: int, count: int, kind: _Kind) -> None:
        nonlocal spaces
        if space:
            open_by_space.setdefault(space, []).append((count, kind))
            spaces |= 1 << space
        else:
            full_kinds.append((count, kind))

    for size in range(length, 0, -1):
        left = int(counts[size])
        while left:
            if fitting := spaces >> size:
                space = size + (fitting & -fitting).bit_length() - 1
                count, filled = open_by_space[space].pop()
                if not open_by_space[space]:
                    spaces &= ~(1 << space)
            else:
                space, count, filled = length, left, None  # new sequences, at most one per unit
            copies = space // size
            full = min(count, left // copies)
            if full:
                put(space - copies * size, full, (size, copies, filled))
            left -= full * copies
            count -= full
            if count and 0 < left < copies:
                put(space - left * size, 1, (size, left, filled))
                left, count = 0, count - 1
            if count and filled is not None:
                put(space, count, filled)
    full_kinds += [entry for entries in open_by_space.values() for entry in entries]
    return [(count, _unrolled(kind)) for count, kind in full_kinds]


def _unrolled(kind: "_Kind | None") -> list[tuple[int, int]]:
    parts = []
    while kind is not None:
        size, copies, kind = kind
        parts.append((size, copies))
    return parts[::-1]


def sequential(sizes: Sizes, length: int) -> Iterator[Groups]:
    """Groups in the units' order (next fit). `sizes` [N], all ≤ `length`; units of size 0 are left out."""
    waiting = np.empty(0, dtype=np.int32)  # the units of a sequence that is unfinished at the end of a chunk
    for first in range(0, sizes.size, _CHUNK):
        last = first + _CHUNK >= sizes.size
        units = np.concatenate([waiting, np.flatnonzero(sizes[first : first + _CHUNK]) + first], dtype=np.int32)
        ends = np.cumsum(sizes[units], dtype=np.int64)
        # For each unit: the first later unit that does not fit into a sequence that begins with it.
        beyond = np.searchsorted(ends, ends - sizes[units] + length, side="right").tolist()
        cuts, at = [0], 0
        while at < units.size and (last or beyond[at] < units.size):
            at = beyond[at]
            cuts.append(at)
        waiting = units[at:]
        if at:
            bounds = np.array(cuts, dtype=np.int64)
            yield units[:at], bounds[1:] - bounds[:-1]


def _by_size(sizes: Sizes, counts: npt.NDArray[np.int64]) -> Units:
    """The units of size 1 or more, ordered by size and then by number: a counting sort in chunks."""
    skipped = int(counts[0])
    order = np.empty(sizes.size - skipped, dtype=np.int32)
    next_of = np.cumsum(counts) - counts - skipped
    for first in range(0, sizes.size, _CHUNK):
        chunk = sizes[first : first + _CHUNK]
        by_size = np.argsort(chunk, kind="stable")
        chunk_counts = np.bincount(chunk, minlength=counts.size)
        by_size = by_size[chunk_counts[0] :]
        chunk_counts[0] = 0
        # Place of each unit: the next free place of its size, plus the units of its size before it in this chunk.
        places = np.arange(by_size.size) + np.repeat(next_of - (np.cumsum(chunk_counts) - chunk_counts), chunk_counts)
        order[places] = by_size + first
        next_of += chunk_counts
    return order


def _affine(count: int, seed: int, size: int) -> npt.NDArray[np.int64]:
    """A permutation of `count` places, i → (a·i + b) mod count, with a and b drawn by a hash."""
    digest = hashlib.blake2b(f"{seed}\0{size}\0{count}".encode(), digest_size=16).digest()
    factor, shift = (int.from_bytes(half, "little") % count for half in (digest[:8], digest[8:]))
    while math.gcd(factor, count) != 1:
        factor += 1
    return (np.arange(count, dtype=np.int64) * factor + shift) % count
