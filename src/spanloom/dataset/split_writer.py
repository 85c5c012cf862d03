"""Writes one split of one shard: parallel IndexedDatasets, and a row for each of their sequences.

In: batches of sequences in their form on disk, supervision label-aligned. Out: in ROOT/SPLIT,
`shard_NN_NAME.{bin,idx}` for each array and `shard_NN_rows.parquet`; the counts for the manifest. All families use it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom.dataset.manifest import ListedFile, ShardSplit
from spanloom.dataset.root.layout import array_prefixes, rows_file
from spanloom.dataset.rows.table import RowsWriter
from spanloom.dataset.statistics import SEQUENCE_LENGTHS
from spanloom.megatron.indexed import ParallelWriter, WrittenFile
from spanloom.split import SPLITS, TRAIN, VALID, is_valid
from spanloom.supervision import Lengths


class SplitWriter:
    """The files of one split of one shard, and the counts of their content.

    No file has its final name before `publish`; if the block ends without it, all files are removed.
    """

    def __init__(
        self,
        root: Path,
        split: str,
        shard: int,
        *,
        arrays: Mapping[str, str],
        span_names: Sequence[str],
        about: pa.Schema,
    ) -> None:
        """`arrays`: name → dtype; `about`: the schema of the family's own columns of a row."""
        self.split = split
        self._root, self._span_names = root, tuple(span_names)
        self._arrays = ParallelWriter(array_prefixes(root, split, shard, arrays))
        self._rows = RowsWriter(rows_file(root, split, shard), about, span_names)
        self._tokens = self._longest = 0
        self._span_tokens = np.zeros(len(self._span_names), dtype=np.int64)
        self._fitting = np.zeros(len(SEQUENCE_LENGTHS), dtype=np.int64)

    def __enter__(self) -> "SplitWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._arrays.__exit__()
        self._rows.discard()

    def append_arrays(self, lengths: Lengths, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """N sequences: `lengths` int32 [N], each of `arrays` flat with sum(lengths) items."""
        self._arrays.append(lengths, arrays)
        self._tokens += int(lengths.sum(dtype=np.int64))
        self._longest = max(self._longest, int(lengths.max(initial=0)))
        self._fitting += [int((lengths <= limit).sum()) for limit in SEQUENCE_LENGTHS]

    def append_rows(self, about: pa.RecordBatch, lengths: Lengths, span_tokens: npt.NDArray[np.int64]) -> None:
        """N rows; batches may differ from those of the arrays. `span_tokens` int64 [N, S]: labels of each span."""
        self._rows.append(about, lengths, span_tokens)
        self._span_tokens += span_tokens.sum(axis=0)

    def publish(self) -> ShardSplit:
        """Publishes all files create-only. Returns the counts and the list of files for the manifest."""
        rows = self._rows.publish()
        files = [WrittenFile(path=self._rows.path, bytes=rows[0], sha256=rows[1])] if rows else []
        files += self._arrays.publish()
        return ShardSplit(
            sequences=self._arrays.sequences,
            tokens=self._tokens,
            span_tokens=dict(zip(self._span_names, self._span_tokens.tolist(), strict=True)),
            longest=self._longest,
            fitting=dict(zip(map(str, SEQUENCE_LENGTHS), self._fitting.tolist(), strict=True)),
            files=tuple(
                ListedFile(path=file.path.relative_to(self._root).as_posix(), bytes=file.bytes, sha256=file.sha256)
                for file in files
            ),
        )


@contextmanager
def split_writers(root: Path, shard: int, **options: Any) -> Iterator[dict[str, SplitWriter]]:
    """A `SplitWriter` for train and one for valid, by name. `options`: arguments of `SplitWriter`."""
    with ExitStack() as stack:
        yield {split: stack.enter_context(SplitWriter(root, split, shard, **options)) for split in SPLITS}


def by_split(digests: npt.NDArray[np.uint64], valid_fraction: float) -> Iterator[tuple[str, list[int]]]:
    """For each split, the indexes of its documents, by the `digests` of their ids; an empty split is left out."""
    valid = is_valid(digests, valid_fraction)
    for split, chosen in ((TRAIN, np.flatnonzero(~valid)), (VALID, np.flatnonzero(valid))):
        if chosen.size:
            yield split, chosen.tolist()
