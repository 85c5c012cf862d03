"""Makes a plan: the lengths of a dataset's documents → files with the units of each training sample.

In: a finished dataset, options. Out: a new folder. Its `plan.json` is written last, after the other files were read
back and checked. The same dataset and options give the same files and `content`. Indexes are hashed here, once.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.dataset.manifest import Content
from spanloom.dataset.plan.bin_packing import Groups, Sizes, best_fit, sequential, size_dtype
from spanloom.dataset.plan.check import check_plan
from spanloom.dataset.plan.format import (
    FILES,
    PLAN_JSON,
    SCHEMA_VERSION,
    Plan,
    PlanContent,
    PlanOptions,
    SlicingCounts,
    index_file,
    open_plan,
    plan_file,
)
from spanloom.dataset.plan.windows import cut_document, cut_off_labels
from spanloom.dataset.root.layout import array_prefix, open_arrays
from spanloom.dataset.root.lock import check_apart
from spanloom.dataset.root.shard_files import check_hash, check_size, shard_files
from spanloom.errors import ArtifactError, DatasetError
from spanloom.megatron.reader import ShardReader, single_sequences
from spanloom.provenance import environment_here, readable_json
from spanloom.storage import remove_files, written_atomically
from spanloom.storage.folders.filling import filling
from spanloom.storage.folders.repeated import MADE_JSON, OnSame, Output, finish, made_or_same
from spanloom.workers import OnProgress

RECORD_NAME = ".spanloom-plan-unfinished"
"""The record in a folder whose plan is not finished."""

SLICES_LOOKED_AT = 1 << 28
"""Most positions of a shard that are read to measure slicing; in a larger shard, evenly spaced sequences are read."""

_CHUNK = 1 << 20
"""Documents processed at once."""


def make_plan(
    root: Path,
    content: Content,
    out: Path,
    options: PlanOptions,
    *,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    on_same: OnSame | None = None,
) -> Plan:
    """Writes the plan of every split to the folder `out`. An existing finished plan of the same dataset and options is
    checked and returned; with `overwrite` another one is replaced, once the new one is complete.

    `content`: of the dataset's manifest. `on_progress`: receives the number of documents planned so far, and their
    total. Raises DatasetError for invalid options, or files that differ from the manifest; ConflictError if anything
    else is in `out`.
    """
    check_options(options, content, root)
    check_apart(root, out)
    identity = {"content_sha256": content.sha256, "options": options.model_dump()}
    names = [
        plan_file(Path(), split, shard.shard, name).as_posix()
        for split in content.totals.splits
        for shard in content.shards
        for name in FILES
    ]
    names += [MADE_JSON, PLAN_JSON]
    output = Output(identity=identity, last=PLAN_JSON, record_name=RECORD_NAME)

    def make(folder: Path) -> None:
        with filling(folder, record_name=RECORD_NAME, identity=identity, files=names) as finished:
            if not finished:
                try:
                    finish(folder, output, _write(root, content, folder, options, on_progress))
                except BaseException:
                    remove_files(folder, reversed(names))
                    raise

    same = made_or_same(out, output, make, overwrite=overwrite, on_same=on_same)
    plan = open_plan(out, root, verify=same)
    if same:
        check_plan(plan)
    return plan


def check_options(options: PlanOptions, content: Content, root: Path) -> None:
    """Raises DatasetError for options that are invalid for this dataset."""

    def refuse(why: str, remedy: str | None = None) -> DatasetError:
        return DatasetError(why, where=str(root), remedy=remedy)

    length = options.sequence_length
    if length < 2:
        raise refuse(f"sequence_length is {length}: a sample needs 2 tokens to predict one from another")
    if length >= 1 << 31:
        raise refuse(f"sequence_length is {length:,}, more than a sequence can have")
    if options.multiple_of < 1 or length % options.multiple_of:
        raise refuse(f"sequence_length {length:,} is not a multiple of multiple_of {options.multiple_of}")
    if not 0 < options.question_tokens < length:
        raise refuse(f"question_tokens is {options.question_tokens:,}; it must be from 1 to {length - 1:,}")
    if options.seed < 0:
        raise refuse(f"seed is {options.seed}, below 0")
    if not {"tokens", "lossmask"} <= content.arrays.keys():
        raise refuse(f"the dataset has the arrays {', '.join(content.arrays)}; a plan needs tokens and lossmask")
    if content.block_size is not None and content.block_size > length:
        raise refuse(
            f"the dataset is packed in blocks of {content.block_size:,} tokens, which hold several conversations and "
            "are not cut again",
            f"take a sequence_length of {content.block_size:,} or more",
        )


def _write(root: Path, content: Content, out: Path, options: PlanOptions, on_progress: OnProgress | None) -> bytes:
    """Writes the files of a plan. Returns `plan.json`, which is to be written last."""
    total, planned = content.totals.sequences, 0
    splits: dict[str, Any] = {}
    indexes: dict[str, Any] = {}
    for split in content.totals.splits:
        shards = []
        counted: Counter[str] = Counter()
        for shard in content.shards:
            if split not in shard.splits or not shard.splits[split].sequences:
                continue
            indexes |= _check_shard(root, content, split, shard.shard)
            reader = open_arrays(root, split, shard.shard, content.arrays)
            entry, counts = _plan_shard(reader, options, out, split, shard.shard)
            shards.append(entry)
            counted.update(counts)
            planned += reader.sequences
            if on_progress is not None:
                on_progress(planned, total)
        if not shards:
            continue
        slicing = {name: counted.pop(f"slicing {name}") for name in SlicingCounts.model_fields}
        counted["padding"] = counted["samples"] * options.sequence_length - counted["positions"]
        splits[split] = {**counted, "slicing": slicing, "shards": shards}
    plan = {
        "dataset": {"content_sha256": content.sha256, "family": content.family},
        "options": options.model_dump(),
        "splits": splits,
    }
    plan_content = PlanContent.model_validate(plan)
    check_plan(Plan(folder=out, root=root, content=plan_content, dataset=content))
    environment = environment_here({"root": str(root.resolve()), "index_files": indexes})
    whole = {"schema_version": SCHEMA_VERSION, "content": plan, "environment": environment}
    return readable_json(whole)


def _check_shard(root: Path, content: Content, split: str, shard: int) -> dict[str, Any]:
    """Checks the files of a shard against the manifest, and the lengths of its arrays against each other. Returns the
    state of its indexes: path in the root → `IndexFile` as JSON, for `environment`."""
    states = {}
    for path, entry in shard_files(content, root, split, shard):
        check_size(path, entry)
        if path.suffix == ".idx":
            before = index_file(path)
            check_hash(path, entry)
            if index_file(path) != before:
                raise DatasetError("the index was changed while it was read", where=str(path), remedy="run again")
            states[f"{split}/{path.name}"] = before.model_dump()
    readers = [
        open_arrays(root, split, shard, {name: dtype}) for name, dtype in content.arrays.items()
    ]  # each reads lengths from its own index
    for first in range(0, readers[0].sequences, _CHUNK):
        lengths = [reader.lengths(first, _CHUNK) for reader in readers]
        for name, other in zip(content.arrays, lengths, strict=True):
            if not np.array_equal(other, lengths[0]):
                raise DatasetError(
                    f"{name} has other lengths than {next(iter(content.arrays))}",
                    where=str(array_prefix(root, split, shard, name)),
                    remedy="`spanloom validate ROOT` says all that is wrong; build the dataset again",
                )
    return states


def _plan_shard(
    reader: ShardReader, options: PlanOptions, out: Path, split: str, shard: int
) -> tuple[dict[str, Any], dict[str, int]]:
    """The shard's entry, as JSON, and its share of the split's counts."""
    documents = reader.sequences
    sizes, long = document_sizes(_lengths(reader), documents, options)
    windows, labels = _windows(reader, long, options)
    del long
    pinned = (windows[:, 1] + windows[:, 3] - windows[:, 2]).astype(np.int64)
    window_lengths = pinned + windows[:, 5] - windows[:, 4]
    whole = int(np.count_nonzero(sizes))
    sizes = np.concatenate([sizes, _padded(window_lengths, options.multiple_of).astype(sizes.dtype)])
    samples, units, files = write_groups(out, split, shard, sizes, options)
    if windows.size:
        files.append(_write_file(plan_file(out, split, shard, "windows"), split, [windows]))
    long_documents = documents - whole
    of_whole = sum(int(lengths[lengths <= options.sequence_length].sum(dtype=np.int64)) for lengths in _lengths(reader))
    counts = {
        "documents": documents,
        "long_documents": long_documents,
        "windows": len(windows) if options.long == "window" else 0,
        "truncated": long_documents if options.long == "truncate" else 0,
        "dropped": long_documents if options.long == "drop" else 0,
        "samples": samples,
        "positions": of_whole + int(window_lengths.sum()),
        "repeated": int(pinned.sum()),
        **labels,
        **{f"slicing {name}": count for name, count in _slicing(reader, options.sequence_length).items()},
    }
    entry = {"shard": shard, "documents": documents, "samples": samples, "units": units, "windows": len(windows)}
    return {**entry, "files": files}, counts


def _lengths(reader: ShardReader) -> Iterator[npt.NDArray[np.int32]]:
    return (reader.lengths(first, _CHUNK) for first in range(0, reader.sequences, _CHUNK))


def document_sizes(
    lengths: Iterable[npt.NDArray[np.int32]], documents: int, options: PlanOptions
) -> tuple[Sizes, npt.NDArray[np.int64]]:
    """The padded size of each document in positions, 0 if longer than a sample; and the numbers of the long documents.

    `lengths`: int32, in chunks, `documents` in total.
    """
    sizes = np.zeros(documents, dtype=size_dtype(options.sequence_length))
    long = []
    first = 0
    for chunk in lengths:
        fits = chunk <= options.sequence_length
        np.copyto(sizes[first : first + chunk.size], _padded(chunk, options.multiple_of), where=fits, casting="unsafe")
        long.append(np.flatnonzero(~fits) + first)
        first += chunk.size
    return sizes, np.concatenate([np.empty(0, dtype=np.int64), *long])


def write_groups(
    out: Path, split: str, shard: int, sizes: Sizes, options: PlanOptions
) -> tuple[int, int, list[dict[str, Any]]]:
    """Packs units of these sizes and writes `units` and `samples`. Returns the numbers of samples and units, the files.

    Nothing is written if all sizes are 0.
    """
    if not (units := int(np.count_nonzero(sizes))):
        return 0, 0, []
    length = options.sequence_length
    groups = best_fit(sizes, length, seed=options.seed) if options.strategy == "best-fit" else sequential(sizes, length)
    held: list[npt.NDArray[np.int32]] = []
    written = _write_file(plan_file(out, split, shard, "units"), split, _units_of(groups, held))
    counts = np.concatenate(held)
    held.clear()
    offsets = _write_file(plan_file(out, split, shard, "samples"), split, _offsets(counts))
    return counts.size, units, [written, offsets]


def _units_of(groups: Iterator[Groups], held: list[npt.NDArray[np.int32]]) -> Iterator[npt.NDArray[np.int32]]:
    """The units of the groups; appends the groups' counts to `held`."""
    for units, counts in groups:
        held.append(counts.astype(np.int32))
        yield units


def _offsets(counts: npt.NDArray[np.int32]) -> Iterator[npt.NDArray[np.int64]]:
    """0, then the end of each sample: int64, in chunks."""
    yield np.zeros(1, dtype=np.int64)
    end = 0
    for first in range(0, counts.size, _CHUNK):
        ends = np.cumsum(counts[first : first + _CHUNK], dtype=np.int64) + end
        end = int(ends[-1])
        yield ends


def _write_file(path: Path, split: str, blocks: Iterable[npt.NDArray[Any]]) -> dict[str, Any]:
    """Writes arrays one after the other, little-endian. Returns the entry of the file."""
    digest, size = hashlib.sha256(), 0
    with written_atomically(path) as stream:
        for block in blocks:
            data = np.ascontiguousarray(block, dtype=block.dtype.newbyteorder("<")).data.cast("B")
            digest.update(data)
            stream.write(data)
            size += len(data)
    return {"path": f"{split}/{path.name}", "bytes": size, "sha256": digest.hexdigest()}


def _padded(lengths: npt.NDArray[Any], multiple_of: int) -> npt.NDArray[Any]:
    return lengths if multiple_of == 1 else -(-lengths // multiple_of) * multiple_of


def _windows(
    reader: ShardReader, long: npt.NDArray[np.int64], options: PlanOptions
) -> tuple[npt.NDArray[np.int32], dict[str, int]]:
    """The windows of documents that are longer than a sample: rows of `windows.bin`; counts of labels.

    With `truncate`, a document's only window is its first positions.
    """
    lost = shortened = 0
    rows: list[npt.NDArray[np.int32]] = []
    numbers: list[int] = long.tolist()
    for document, lossmask in zip(numbers, single_sequences(*reader.arrays["lossmask"], numbers), strict=True):
        if options.long == "drop":
            lost += int(np.count_nonzero(lossmask))
            continue
        if options.long == "truncate":
            cut = np.array([[0, 0, 0, 0, options.sequence_length]], dtype=np.int32)
            lost += int(np.count_nonzero(lossmask[options.sequence_length :]))
        else:
            pieces = cut_document(lossmask, options.sequence_length, pinned=options.question_tokens)
            cut, shortened = pieces.windows, shortened + pieces.shortened
        rows.append(np.insert(cut, 0, document, axis=1))
    windows = np.concatenate([np.empty((0, 6), dtype=np.int32), *rows], dtype=np.int32)
    return windows, {"lost_labels": lost, "shortened_questions": shortened}


def _slicing(reader: ShardReader, length: int) -> dict[str, int]:
    """Counts labels trained without their question if the shard is cut every `length` tokens, as by `StreamDataset`."""
    prefix, _ = reader.arrays["lossmask"]
    path = prefix.with_name(prefix.name + ".bin")
    sequences = path.stat().st_size // length
    looked_at = min(sequences, max(1, SLICES_LOOKED_AT // length))
    counts = {"sequences": looked_at, "of_sequences": sequences, "labels": 0, "without_question": 0}
    at_once = max(1, _CHUNK // length) if looked_at == sequences else 1
    for first in range(0, looked_at, at_once):
        begin = first * sequences // looked_at * length
        count = min(at_once, looked_at - first) * length
        before = np.zeros(1, dtype=np.uint8) if begin == 0 else np.fromfile(path, np.uint8, 1, offset=begin - 1)
        lossmask = np.fromfile(path, np.uint8, count, offset=begin)
        if lossmask.size != count:
            raise ArtifactError("the file ends early", where=str(path), remedy="run again when nobody writes to it")
        labels, without = cut_off_labels(np.concatenate([before, lossmask]), length)
        counts["labels"] += labels
        counts["without_question"] += without
    return counts
