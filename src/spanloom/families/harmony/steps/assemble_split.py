"""Step 3: the global part of the split. Is any id repeated, and how many documents are valid?

In: the ids of every shard. Out: `split.json`, which the manifest needs. write-indexed does not wait for it, because the
id alone decides whether a document is valid.
Memory: 8 bytes per row (the digest of each id), up to 2 GiB: see `spanloom.dataset.rows.digests`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.rows.digests import AT_ONCE, DigestRuns
from spanloom.errors import ArtifactError, DuplicateIdError, SpanloomError
from spanloom.families.harmony import defaults
from spanloom.families.harmony.contract.config import split_decided
from spanloom.families.harmony.contract.profile import Profile, profile_of_family
from spanloom.families.harmony.render.artifact import IDS_JSON, read_ids, read_sidecar, verify_files
from spanloom.families.harmony.render.packs import DIGEST, IDS_NAME, read_ids_file
from spanloom.families.harmony.render.work import Rendered, check_one_work, staged
from spanloom.provenance import readable_json
from spanloom.split import among, id_digests, is_valid
from spanloom.storage import write_atomically
from spanloom.storage.scratch import chosen_scratch, scratch_for

ON_DUPLICATE = ("error", "keep")


def assemble_split(
    *,
    ids: Sequence[Path],
    split: Path,
    valid_fraction: float = defaults.VALID_FRACTION,
    on_duplicate: str = defaults.ON_DUPLICATE,
    scratch: Path | None = None,
    at_once: int = AT_ONCE,
) -> dict[str, Any]:
    """Reads the ids in the folders `ids` (in shard order) and writes the file `split`. See `split_of`."""
    shards = [Ids.open(directory, index) for index, directory in enumerate(ids)]
    return split_of(shards, split, valid_fraction, on_duplicate, scratch=scratch, at_once=at_once)


def split_of(
    shards: Sequence["Ids"],
    split: Path,
    valid_fraction: float,
    on_duplicate: str,
    *,
    scratch: Path | None = None,
    at_once: int = AT_ONCE,
) -> dict[str, Any]:
    """Reads the ids of all shards, in order, and writes the file `split`.

    A duplicate id raises DuplicateIdError, or is counted with `on_duplicate="keep"`: both copies are then in the same
    split, because the id alone decides. With more than `at_once` rows, the digests are written to a temporary folder
    below `scratch`. Returns the content of `split.json`.
    """
    check_on_duplicate(on_duplicate)
    if len(families := {shard.profile.family for shard in shards}) != 1:
        raise ArtifactError(f"ids of one family are wanted, not of {sorted(families)}")
    profile = shards[0].profile
    decided = split_decided(profile, valid_fraction)
    counts = []
    with DigestRuns(sum(shard.rows for shard in shards), scratch, at_once) as digests:
        for shard in shards:
            documents = valid = 0
            for batch, of_rows in shard.digests():
                digests.add(batch)
                documents += int(of_rows.sum())
                valid += int(of_rows[is_valid(batch, valid_fraction)].sum())
            if documents != shard.rows:
                raise ArtifactError(f"the ids hold {documents} documents, {shard.rows} are expected", where=shard.where)
            counts.append({"shard": shard.index, "rows_read": shard.rows_read, "rows": shard.rows, "valid": valid})
        repeated = _repeated_rows(shards, digests, on_duplicate)
    total = sum(shard.rows for shard in shards)
    result = {
        "artifact": "split_v1",
        **decided,
        "realised_valid_fraction": sum(shard["valid"] for shard in counts) / total if total else 0.0,
        "on_duplicate": on_duplicate,
        "repeated_rows": repeated,
        "shards": counts,
    }
    write_atomically(split, readable_json(result))
    return result


@dataclass(frozen=True, kw_only=True)
class Ids:
    """The ids of one shard: `rows_read` source rows, rendered into `rows` documents; rejected rows have no document.

    `batches` reads at least the given columns, from the start; the documents of one row are in one batch. `where`: the
    place, for messages.
    """

    profile: Profile
    index: int
    where: str
    rows_read: int
    rows: int
    batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]

    @classmethod
    def of_file(cls, path: Path, shard: Rendered) -> "Ids":
        """The ids of a shard at a work place; `path`: its `ids.parquet`, already checked."""
        return cls(
            profile=profile_of_family(shard.family),
            index=shard.shard,
            where=f"{shard.place}/{IDS_NAME}",
            rows_read=shard.rows_read,
            rows=shard.rows,
            batches=partial(read_ids_file, path),
        )

    @classmethod
    def open(cls, directory: Path, index: int) -> "Ids":
        """The ids in a folder of parts; each file is checked against its sha256."""
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
            where=str(directory),
            rows_read=sidecar["rows_read"],
            rows=sidecar["rows"],
            batches=lambda _: read_ids(directory, sidecar["parts"]),
        )

    def digests(self) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]]:
        """Source rows in batches: digests of their ids, uint64 [N], and documents per row, int64 [N].

        Digests are read if render-shard wrote them, otherwise computed.
        """
        for batch in self.batches(("row", DIGEST)):
            firsts, of_rows = _rows_of(batch)
            if DIGEST in batch.schema.names:
                yield batch.column(DIGEST).to_numpy()[firsts], of_rows
            else:
                yield id_digests(self._ids_at(batch, firsts)), of_rows

    def read(self) -> Iterator[tuple[npt.NDArray[np.int64], list[str]]]:
        """Source rows in batches: row numbers, int64 [N], and ids."""
        for batch in self.batches(("row", self.profile.split_column)):
            firsts, _ = _rows_of(batch)
            yield batch.column("row").to_numpy()[firsts], self._ids_at(batch, firsts)

    def _ids_at(self, batch: pa.RecordBatch, places: npt.NDArray[np.int64]) -> list[str]:
        ids: list[str] = batch.column(self.profile.split_column).take(pa.array(places)).to_pylist()
        return ids


def _rows_of(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The index of each row's first document in a batch, and the row's number of documents, both int64 [N].

    The documents of one row are adjacent.
    """
    rows = batch.column("row").to_numpy()
    firsts = np.flatnonzero(np.diff(rows, prepend=-1))
    return firsts, np.diff(firsts, append=rows.size)


def check_on_duplicate(on_duplicate: str) -> None:
    """Raises SpanloomError for an invalid value."""
    if on_duplicate not in ON_DUPLICATE:
        raise SpanloomError(f"on_duplicate must be one of {', '.join(ON_DUPLICATE)}, not {on_duplicate!r}")


def _repeated_rows(shards: Sequence[Ids], digests: DigestRuns, on_duplicate: str) -> int:
    """The number of rows that repeat the id of an earlier row. Raises DuplicateIdError at the first, unless kept.

    Equal digests only give candidates; a second pass compares the ids.
    """
    repeated = 0
    for some in digests.repeated():
        seen: dict[bytes, tuple[int, int]] = {}
        for shard in shards:
            for rows, ids in shard.read():
                places = np.flatnonzero(among(id_digests(ids), some))
                for place in places.tolist():
                    position = (shard.index, int(rows[place]))
                    fingerprint = blake2b(ids[place].encode(), digest_size=16).digest()
                    before = seen.setdefault(fingerprint, position)
                    if before == position:
                        continue
                    if on_duplicate == "error":
                        raise DuplicateIdError(
                            f"duplicate {shard.profile.source.id_column} {ids[place]!r}",
                            where=" and ".join(f"shard {index:02d}, row {row}" for index, row in (before, position)),
                            remedy="fix the source, or accept and count copies with --on-duplicate keep",
                        )
                    repeated += 1
    return repeated


def run(
    *,
    rendered: Sequence[str],
    split: str,
    valid_fraction: float = defaults.VALID_FRACTION,
    on_duplicate: str = defaults.ON_DUPLICATE,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over paths or URIs. `rendered`: the manifests of all shards, in order; only the ids are staged from the
    work place. Raises ArtifactError for manifests of different sources or options, before any ids are staged."""
    with scratch_for("assemble-split", [*rendered, split], scratch) as staging:
        shards = [Rendered.read(staging.file(place)) for place in rendered]
        check_one_work(shards, rendered)
        files = staged(staging, shards, IDS_NAME)
        ids = [Ids.of_file(path, shard) for path, shard in zip(files, shards, strict=True)]
        result = split_of(ids, staging.path(split), valid_fraction, on_duplicate, scratch=chosen_scratch(scratch))
        staging.publish_file(split)
    return result


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
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
