"""The global part of the split: is any id repeated, and how many documents are valid?

In: the ids of every shard. Out: counts, or an error that names the first id that is there twice. Writing does not wait
for it, because the id alone decides whether a document is valid.
Memory: 8 bytes per row (the digest of each id), up to 2 GiB: see `spanloom.dataset.rows.digests`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.building.parts.packs import DIGEST, IDS_NAME, read_ids_file
from spanloom.building.parts.stored import IDS_JSON, read_ids, read_sidecar, verify_files
from spanloom.building.parts.work import Rendered
from spanloom.dataset.rows.digests import AT_ONCE, DigestRuns
from spanloom.errors import ArtifactError, DuplicateIdError, SpanloomError
from spanloom.provenance import readable_json
from spanloom.split import among, id_digests, is_valid, split_rule, valid_threshold
from spanloom.storage import write_atomically

ON_DUPLICATE = ("error", "keep")


def split_decided(id_column: str, valid_fraction: float) -> dict[str, Any]:
    """The `split` entries of a manifest. Raises SpanloomError for an invalid fraction."""
    try:
        threshold = valid_threshold(valid_fraction)
    except ValueError as fault:
        raise SpanloomError(str(fault), remedy="give --valid-fraction a number from 0 to 1") from None
    return {"rule": split_rule(id_column), "valid_fraction": valid_fraction, "threshold": str(threshold)}


def check_on_duplicate(on_duplicate: str) -> None:
    """Raises SpanloomError for an invalid value."""
    if on_duplicate not in ON_DUPLICATE:
        raise SpanloomError(f"on_duplicate must be one of {', '.join(ON_DUPLICATE)}, not {on_duplicate!r}")


@dataclass(frozen=True, kw_only=True)
class Ids:
    """The ids of one shard: `rows_read` source rows, made into `rows` documents; rejected rows have none.

    `column`: that of the ids; `named`: their name in the source; `where`: the place, for messages. `batches` reads at
    least the given columns, from the start; the documents of one row are in one batch.
    """

    column: str
    named: str
    index: int
    where: str
    rows_read: int
    rows: int
    batches: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]

    @classmethod
    def of_file(cls, path: Path, shard: Rendered, column: str, named: str) -> "Ids":
        """The ids of a shard at a work place; `path`: its `ids.parquet`, already checked."""
        return cls(
            column=column,
            named=named,
            index=shard.shard,
            where=f"{shard.place}/{IDS_NAME}",
            rows_read=shard.rows_read,
            rows=shard.rows,
            batches=partial(read_ids_file, path),
        )

    @classmethod
    def open(cls, directory: Path, index: int, column: str, named: str) -> "Ids":
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
            column=column,
            named=named,
            index=index,
            where=str(directory),
            rows_read=sidecar["rows_read"],
            rows=sidecar["rows"],
            batches=lambda _: read_ids(directory, sidecar["parts"]),
        )

    def digests(self) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]]:
        """Source rows in batches: digests of their ids, uint64 [N], and documents per row, int64 [N].

        Digests are read if they were written with the ids, otherwise computed.
        """
        for batch in self.batches(("row", DIGEST)):
            firsts, of_rows = _rows_of(batch)
            if DIGEST in batch.schema.names:
                yield batch.column(DIGEST).to_numpy()[firsts], of_rows
            else:
                yield id_digests(self._ids_at(batch, firsts)), of_rows

    def read(self) -> Iterator[tuple[npt.NDArray[np.int64], list[str]]]:
        """Source rows in batches: row numbers, int64 [N], and ids."""
        for batch in self.batches(("row", self.column)):
            firsts, _ = _rows_of(batch)
            yield batch.column("row").to_numpy()[firsts], self._ids_at(batch, firsts)

    def _ids_at(self, batch: pa.RecordBatch, places: npt.NDArray[np.int64]) -> list[str]:
        ids: list[str] = batch.column(self.column).take(pa.array(places)).to_pylist()
        return ids


def _rows_of(batch: pa.RecordBatch) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The index of each row's first document in a batch, and the row's number of documents, both int64 [N].

    The documents of one row are adjacent.
    """
    rows = batch.column("row").to_numpy()
    firsts = np.flatnonzero(np.diff(rows, prepend=-1))
    return firsts, np.diff(firsts, append=rows.size)


def write_split(path: Path, rule: Mapping[str, Any], counted: Mapping[str, Any]) -> dict[str, Any]:
    """Writes `split.json`, which assembly needs. `rule`: see `split_decided`; `counted`: see `count_ids`. Returns its
    content."""
    result = {"artifact": "split_v1", **rule, **counted}
    write_atomically(path, readable_json(result))
    return result


def count_ids(
    shards: Sequence[Ids],
    valid_fraction: float,
    on_duplicate: str,
    *,
    scratch: Path | None = None,
    at_once: int = AT_ONCE,
) -> dict[str, Any]:
    """Reads the ids of all shards, in order. Returns `repeated_rows`, and of each shard how many documents are valid.

    A repeated id raises DuplicateIdError, or is counted with `on_duplicate="keep"`: both copies are then in the same
    split, because the id alone decides. With more than `at_once` rows, the digests are written to a temporary folder
    below `scratch`.
    """
    check_on_duplicate(on_duplicate)
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
    return {
        "realised_valid_fraction": sum(shard["valid"] for shard in counts) / total if total else 0.0,
        "on_duplicate": on_duplicate,
        "repeated_rows": repeated,
        "shards": counts,
    }


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
                            f"duplicate {shard.named} {ids[place]!r}",
                            where=" and ".join(f"shard {index:02d}, row {row}" for index, row in (before, position)),
                            remedy="fix the source, or accept and count copies with --on-duplicate keep",
                        )
                    repeated += 1
    return repeated
