"""Documents that are scored together, and stored until all documents are scored.

In: the signals of some documents of one shard. Out: a file, and its arrays again. A part is the unit of resuming: what
is in it depends on the dataset and the options alone.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.errors import ArtifactError
from spanloom.storage import sha256_file, write_atomically
from spanloom.supervision import Lengths
from spanloom.teacher.coding import encode_ids, encode_logprobs
from spanloom.teacher.format import OF_TOP, OWN, REST, TOP_HIGH, TOP_LOGP, TOP_LOW
from spanloom.teacher.signals import Signals

PART_TOKENS = 1 << 19
"""Most tokens of a part. A run that is killed loses one; at k = 32 it takes at most 86 MB."""

_LENGTHS = "positions"


def coded(signals: Sequence[Signals], k: int, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of documents end to end, by name, flat; and `positions` int32 [N], the number of each document's."""
    whole = Signals.joined(signals, k)
    low, high = encode_ids(whole.ids)
    stored: dict[str, npt.NDArray[Any]] = {
        TOP_LOW: low.reshape(-1),
        TOP_HIGH: high.reshape(-1),
        TOP_LOGP: encode_logprobs(whole.logprobs).reshape(-1),
        **({OWN: encode_logprobs(whole.own)} if OWN in names else {}),
        REST: encode_logprobs(whole.rest),
    }
    counts = np.array([len(each) for each in signals], np.int32)
    return {_LENGTHS: counts, **{name: stored[name] for name in names}}


def write_part(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> str:
    """Writes a part. Returns its sha256."""
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, stream.getvalue())
    return sha256_file(path)


def read_part(path: Path, sha256: str, k: int) -> tuple[dict[str, Lengths], dict[str, npt.NDArray[Any]]]:
    """Lengths int32 [N] in items and flat values, both by name. Raises ArtifactError if the file was changed."""
    if not path.is_file() or sha256_file(path) != sha256:
        raise ArtifactError(
            "a part of the scores is missing or was changed",
            where=str(path),
            remedy="remove the folder, and score the dataset again",
        )
    with np.load(path, allow_pickle=False) as stored:
        values = {name: stored[name] for name in stored.files if name != _LENGTHS}
        counts = stored[_LENGTHS]
    return {name: counts * np.int32(k if name in OF_TOP else 1) for name in values}, values
