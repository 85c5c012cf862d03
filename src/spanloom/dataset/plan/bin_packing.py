"""Which units go together into sequences of one length. Arrays in, arrays out.

In: the size of each unit (a document, or a window of one), the length of a sequence. Out: groups of units, sequence by
sequence, each group's sizes adding up to at most that length. Every unit of size 1 or more is in exactly one group.

    sizes [5 3 2 5 1], length 7
    best fit      [0 2] [3 4] [1]    the largest first, each into the fullest sequence that still takes it
    sequential    [0] [1 2] [3 4]    in their order; a new sequence where the next unit does not fit

Best fit works on the histogram of sizes: sequences that are filled alike are one entry with a count. Its time is linear
in the units, plus a term that depends on the length alone, and its groups are as full as those of best-fit decreasing,
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
"""Units of some sequences, end to end, int32 [T]; how many of them each sequence holds, int64 [K], sum = T."""

_CHUNK = 1 << 21
"""Units looked at together: what is held beside the sizes and one int32 a unit does not grow with their number."""

_Kind = tuple[int, int, "_Kind | None"]
"""How a sequence is filled: (size, how many units of it, what was put in before)."""


def size_dtype(length: int) -> np.dtype[np.uint16] | np.dtype[np.uint32]:
    """The smallest type for sizes up to `length`; those of 16 bits are sorted in linear time."""
    return np.dtype(np.uint16) if length <= np.iinfo(np.uint16).max else np.dtype(np.uint32)


def best_fit(sizes: Sizes, length: int, *, seed: int) -> Iterator[Groups]:
    """Groups by best-fit decreasing. `sizes` [N], all ≤ `length`; units of size 0 are left out.

    `seed` decides which units of equal size are where. The same arguments give the same groups under any version of
    numpy.
    """
    counts = np.zeros(length + 1, dtype=np.int64)
    for first in range(0, sizes.size, _CHUNK):
        counts += np.bincount(sizes[first : first + _CHUNK], minlength=length + 1)
    order = _by_size(sizes, counts)
    next_of = np.cumsum(counts) - counts
    next_of -= counts[0]  # `order` leaves out those of size 0
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
    """How sequences are filled by best-fit decreasing: `(how many, [(size, units of it), …])`, sizes descending.

    `counts` int64 [length + 1]: units of each size. A unit goes into the sequence with the least space that still takes
    it; having taken one, that sequence has the least space still, so it takes as many of this size as fit.
    """
    # By free space: sequences with a count. Bit s of `spaces` says that some have the space s.
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
                space, count, filled = length, left, None  # new sequences, as many as may be wanted
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
    waiting = np.empty(0, dtype=np.int32)  # the units of a sequence that the end of a chunk left open
    for first in range(0, sizes.size, _CHUNK):
        last = first + _CHUNK >= sizes.size
        units = np.concatenate([waiting, np.flatnonzero(sizes[first : first + _CHUNK]) + first], dtype=np.int32)
        ends = np.cumsum(sizes[units], dtype=np.int64)
        # For each unit: the first one that no longer fits into a sequence which begins with it.
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
    """The units of size 1 and more, ordered by size and then by number: a counting sort, chunk by chunk."""
    skipped = int(counts[0])
    order = np.empty(sizes.size - skipped, dtype=np.int32)
    next_of = np.cumsum(counts) - counts - skipped
    for first in range(0, sizes.size, _CHUNK):
        chunk = sizes[first : first + _CHUNK]
        by_size = np.argsort(chunk, kind="stable")
        chunk_counts = np.bincount(chunk, minlength=counts.size)
        by_size = by_size[chunk_counts[0] :]
        chunk_counts[0] = 0
        # Place of each: where its size continues, and how many of its size come before it in this chunk.
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
