"""Step 3: the one global decision. Which rows are valid, and does any id stand twice?

In: the ids of every shard. Out: a folder with one row bitmap a shard and `split.json`.
Memory: 8 bytes a row (the digest of each id), up to 2 GiB: see `spanloom.dataset.rows.digests`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.rows.digests import AT_ONCE, DigestRuns
from spanloom.errors import ArtifactError, DuplicateIdError, SpanloomError
from spanloom.families.harmony import defaults
from spanloom.families.harmony.contract.config import rule_of_split
from spanloom.families.harmony.contract.profile import Profile, profile_of_family
from spanloom.families.harmony.render.artifact import IDS_JSON, read_ids, read_sidecar, verify_files
from spanloom.families.harmony.split_files import SPLIT_JSON, write_valid
from spanloom.provenance import readable_json
from spanloom.split import among, id_digests, is_valid, valid_threshold
from spanloom.storage import write_atomically
from spanloom.storage.scratch import chosen_scratch, scratch_for

ON_DUPLICATE = ("error", "keep")


def assemble_split(
    *,
    ids: list[Path],
    split: Path,
    valid_fraction: float = defaults.VALID_FRACTION,
    on_duplicate: str = defaults.ON_DUPLICATE,
    scratch: Path | None = None,
    at_once: int = AT_ONCE,
) -> dict[str, Any]:
    """Splits the rows whose ids lie in the folders `ids` (in shard order) and writes the folder `split`.

    An id that two rows have raises DuplicateIdError, or is counted with `on_duplicate="keep"`: both copies then
    fall into one split, since the id alone decides. Of more than `at_once` rows the digests are written to a temporary
    folder below `scratch`. Returns what `split.json` holds.
    """
    threshold = checked_threshold(valid_fraction, on_duplicate)
    shards = [_Ids.open(directory, index) for index, directory in enumerate(ids)]
    if len(families := {shard.profile.family for shard in shards}) != 1:
        raise ArtifactError(f"ids of one family are wanted, not of {sorted(families)}")
    profile = shards[0].profile
    counts = []
    valid_documents = 0
    with DigestRuns(sum(shard.rows for shard in shards), scratch, at_once) as digests:
        for shard in shards:
            valid = np.zeros(shard.rows_read, dtype=np.uint8)
            documents = 0
            for rows, names, of_rows in shard.read():
                batch = id_digests(names)
                digests.add(batch)
                chosen = is_valid(batch, valid_fraction)
                valid[rows] = chosen
                documents += int(of_rows.sum())
                valid_documents += int(of_rows[chosen].sum())
            if documents != shard.rows:
                raise ArtifactError(
                    f"the ids hold {documents} documents, {IDS_JSON} says {shard.rows}", where=str(shard.directory)
                )
            write_valid(split, shard.index, valid)
            counts.append(
                {"shard": shard.index, "rows_read": shard.rows_read, "rows": shard.rows, "valid": int(valid.sum())}
            )
        repeated = _repeated_rows(shards, digests, on_duplicate)
    total = sum(shard.rows for shard in shards)
    result = {
        "artifact": "split_v1",
        "rule": rule_of_split(profile),
        "valid_fraction": valid_fraction,
        "threshold": str(threshold),
        "realised_valid_fraction": valid_documents / total if total else 0.0,
        "on_duplicate": on_duplicate,
        "repeated_rows": repeated,
        "shards": counts,
    }
    write_atomically(split / SPLIT_JSON, readable_json(result))
    return result


@dataclass(frozen=True, kw_only=True)
class _Ids:
    """The ids artifact of one shard: `rows_read` source rows, of which those rendered became `rows` documents."""

    profile: Profile
    index: int
    directory: Path
    rows_read: int
    rows: int
    parts: list[dict[str, Any]]

    @classmethod
    def open(cls, directory: Path, index: int) -> "_Ids":
        sidecar = read_sidecar(directory / IDS_JSON)
        if sidecar["shard"] != index:
            raise ArtifactError(
                f"these ids are of shard {sidecar['shard']}, expected shard {index}",
                where=str(directory),
                remedy="give the ids folders in shard order",
            )
        for part in sidecar["parts"]:
            verify_files(directory, part["files"])
        return cls(
            profile=profile_of_family(sidecar["family"]),
            index=index,
            directory=directory,
            rows_read=sidecar["rows_read"],
            rows=sidecar["rows"],
            parts=sidecar["parts"],
        )

    def read(self) -> Iterator[tuple[npt.NDArray[np.int64], list[str], npt.NDArray[np.int64]]]:
        """Source rows in batches: numbers, int64 [N], ids, and how many documents each has become, int64 [N].

        The documents of one row lie in one batch, one after the other.
        """
        for batch in read_ids(self.directory, self.parts):
            rows = batch.column("row").to_numpy()
            firsts = np.flatnonzero(np.diff(rows, prepend=-1))
            ids = batch.column(self.profile.split_column).take(pa.array(firsts))
            yield rows[firsts], ids.to_pylist(), np.diff(firsts, append=rows.size)


def checked_threshold(valid_fraction: float, on_duplicate: str) -> int:
    """The threshold of the split rule. Raises SpanloomError for a value that one of the options cannot have."""
    if on_duplicate not in ON_DUPLICATE:
        raise SpanloomError(f"on_duplicate must be one of {', '.join(ON_DUPLICATE)}, not {on_duplicate!r}")
    try:
        return valid_threshold(valid_fraction)
    except ValueError as fault:
        raise SpanloomError(str(fault), remedy="give --valid-fraction a number from 0 to 1") from None


def _repeated_rows(shards: list[_Ids], digests: DigestRuns, on_duplicate: str) -> int:
    """How many rows repeat an id that an earlier row has; raises at the first unless they are to be kept.

    Equal digests only make candidates; a second pass over the ids themselves decides.
    """
    repeated = 0
    for some in digests.repeated():
        seen: dict[bytes, tuple[int, int]] = {}
        for shard in shards:
            for rows, ids, _ in shard.read():
                places = np.flatnonzero(among(id_digests(ids), some))
                for place in places.tolist():
                    here = (shard.index, int(rows[place]))
                    fingerprint = blake2b(ids[place].encode(), digest_size=16).digest()
                    before = seen.setdefault(fingerprint, here)
                    if before == here:
                        continue
                    if on_duplicate == "error":
                        raise DuplicateIdError(
                            f"{shard.profile.source.id_column} {ids[place]!r} stands twice",
                            where=" and ".join(f"shard {index:02d}, row {row}" for index, row in (before, here)),
                            remedy="fix the source, or accept and count copies with --on-duplicate keep",
                        )
                    repeated += 1
    return repeated


def run(*, ids: Sequence[str], split: str, scratch: Path | None = None, **options: Any) -> dict[str, Any]:
    """The step over places. `options`: see `assemble_split`."""
    with scratch_for("assemble-split", [*ids, split], scratch) as here:
        folders = [here.folder(place) for place in ids]
        result = assemble_split(ids=folders, split=here.path(split), scratch=chosen_scratch(scratch), **options)
        here.publish_folder(split, last=SPLIT_JSON)
    return result


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What Kubeflow shows of this step's artifacts: artifact → metadata. `result`: what `run` returns."""
    counts = {
        "rows": sum(shard["rows"] for shard in result["shards"]),
        "valid_rows": sum(shard["valid"] for shard in result["shards"]),
        "realised_valid_fraction": result["realised_valid_fraction"],
        "repeated_rows": result["repeated_rows"],
    }
    return {
        "split": {"rule": result["rule"], "valid_fraction": result["valid_fraction"], **counts},
        "metrics": counts,
    }
