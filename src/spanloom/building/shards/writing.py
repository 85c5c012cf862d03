"""Parts of a shard → the files of a dataset, supervision shifted to labels.

In: the parts, in order. The id decides whether a document is valid. Out: under the dataset root, for each split that
has documents, `shard_NN_NAME.{bin,idx}` of each array and `shard_NN_rows.parquet`; `rejects/shard_NN.jsonl` if rows
were refused. Files are never overwritten: an existing file with the same bytes counts as written.
"""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom import workers
from spanloom.building.parts.stored import OpenPart, documents_of
from spanloom.building.recipe import DatasetForm
from spanloom.dataset.manifest import ListedFile, ShardSplit
from spanloom.dataset.root.layout import rejects_file
from spanloom.dataset.split_writer import SplitWriter, split_writers
from spanloom.errors import ArtifactError
from spanloom.split import id_digests, is_valid
from spanloom.storage import publish_bytes, sha256_file
from spanloom.supervision import TokenDocuments, shift_to_labels, tokens_per_span


def write_shard(
    form: DatasetForm,
    shard: int,
    parts: Iterable[OpenPart],
    root: Path,
    valid_fraction: float,
    *,
    lists_rejects: bool = True,
) -> tuple[dict[str, ShardSplit], ListedFile | None]:
    """Writes the files of one shard. Returns the entries of the manifest: each split, and the file of rejects.

    Raises ConflictError if a file exists with other bytes, ArtifactError if documents and ids do not belong together.
    """
    rejects: list[bytes] = []
    layout = form.layout
    with split_writers(root, shard, arrays=layout.arrays, span_names=layout.span_names, about=form.about) as by_split:
        writers = list(by_split.values())
        for part in parts:
            for batch, about in zip(part.documents, part.ids, strict=True):
                rows, documents = documents_of(batch)
                if not np.array_equal(rows, about.column("row").to_numpy()):
                    raise ArtifactError(f"the documents of shard {shard:02d} and their ids are of different rows")
                valid = is_valid(id_digests(about.column(form.split_column).to_pylist()), valid_fraction)
                _append(writers, documents, about, valid, form)
                if workers.counters_here:
                    workers.counters_here.add(shard, written=len(documents))
            rejects.append(part.rejects)
        splits = {name: writer.publish() for name, writer in by_split.items()}
    return splits, publish_rejects(b"".join(rejects), shard, root) if lists_rejects else None


def _append(
    writers: list[SplitWriter],
    documents: TokenDocuments,
    about: pa.RecordBatch,
    valid: npt.NDArray[np.bool_],
    form: DatasetForm,
) -> None:
    """Shifts a batch and distributes its documents to the splits.

    Consecutive documents of one split are written together, as slices without a copy:

        valid [F F T F]  →  train 0:2 · valid 2:3 · train 3:4
    """
    lengths = documents.lengths
    span = shift_to_labels(documents.span_id, lengths)
    arrays: dict[str, npt.NDArray[Any]] = {
        "tokens": documents.tokens,
        "lossmask": shift_to_labels(documents.loss_mask, lengths),
        "span": span,
    }
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    edges = [0, *(np.flatnonzero(valid[1:] != valid[:-1]) + 1).tolist(), len(documents)]
    for first, last in pairwise(edges):
        run = slice(ends[first], ends[last])
        writers[int(valid[first])].append_arrays(
            lengths[first:last], {name: arrays[name][run] for name in form.layout.arrays}
        )
    span_tokens = tokens_per_span(span, lengths, len(form.layout.span_names))
    for split, writer in enumerate(writers):
        chosen = valid == bool(split)
        if chosen.any():
            writer.append_rows(about.filter(pa.array(chosen)), lengths[chosen], span_tokens[chosen])


def publish_rejects(data: bytes, shard: int, root: Path) -> ListedFile | None:
    """Writes the refused rows of a shard, lines of JSON, if there are any. Returns the entry of the manifest."""
    if not data:
        return None
    path = rejects_file(root, shard)
    publish_bytes(data, path)
    return ListedFile(path=path.relative_to(root).as_posix(), bytes=len(data), sha256=sha256_file(path))
