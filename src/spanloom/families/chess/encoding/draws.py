"""Random numbers that belong to a game, not to the order in which games come.

In: the game's key (its file and its id), the seed, the epoch. Out: numbers in [0, 1), and the order of an epoch.

Every draw is a hash of what it is for. So a game gives the same sample in any worker, beside any neighbours, and no
generator is shared, seeded or advanced. SHAKE-128 is the generator: its output is as long as asked, and the same in
every version of everything.
"""

from collections.abc import Iterable
from hashlib import blake2b, shake_128

import numpy as np
import numpy.typing as npt

KEY_BYTES = 16

Keys = npt.NDArray[np.uint8]
"""uint8 [N, 16]: the keys of N games or rows."""


def key_of(file: str, item: str) -> bytes:
    """The key of a game or a row: 16 bytes. Args: the file's name, the game's id (or the row's number) as text."""
    return blake2b(f"{file}\0{item}".encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()


def keys_of(file: str, items: Iterable[str]) -> Keys:
    """`key_of` each: uint8 [N, 16]."""
    joined = b"".join(key_of(file, item) for item in items)
    return np.frombuffer(joined, np.uint8).reshape(-1, KEY_BYTES)


def pass_of(*parts: int | str) -> bytes:
    """What the draws of one pass have in common: the seed, the epoch and what they are for, as bytes."""
    return "\0".join(map(str, parts)).encode()


def uniforms(key: bytes, of_pass: bytes, count: int) -> npt.NDArray[np.float64]:
    """`count` numbers in [0, 1) that hang on the key and the pass alone: float64 [count], multiples of 2**-53."""
    bits = np.frombuffer(shake_128(key + of_pass).digest(8 * count), "<u8") >> np.uint64(11)
    return np.asarray(bits * 2.0**-53, np.float64)


def shuffled(keys: Keys, of_pass: bytes) -> npt.NDArray[np.intp]:
    """An order of N items, intp [N]: by a hash of each item's key and the pass.

    Whether other items are there does not change which of two comes first.
    """
    tags = np.ascontiguousarray(keys[:, :8]).view("<u8")[:, 0]
    mixed = tags ^ np.frombuffer(shake_128(of_pass).digest(8), "<u8")[0]
    for shift, multiplier in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64's finalizer
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(multiplier)
    return np.argsort(mixed ^ (mixed >> np.uint64(31)), kind="stable")
