"""Step 6: is what lies on the disk what it must be? Only then does the pending manifest become the manifest.

In: a dataset root, its source where it is at hand. Out: a `Report`. Reads the files through Megatron's own
IndexedDataset, whatever the family. Of SYNTH KD it reads spans off the tokens alone and renders sampled rows again
through openai-harmony; of packed chat it derives each block's loss mask and packs the first blocks of each shard again,
token by token. No code here rendered, packed, shifted or wrote any of it.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spanloom import manifest
from spanloom.chat import verify as packed
from spanloom.chat.blocks import FAMILY as PACKED_CHAT
from spanloom.chat.records import read_records, transcript_files
from spanloom.chat.vocabulary import tokenizer_of
from spanloom.errors import ArtifactError
from spanloom.findings import Finding, Report
from spanloom.harmony.config import ARRAY_DTYPES
from spanloom.harmony.resample import check_sample
from spanloom.harmony.source import open_source
from spanloom.harmony.tokenizer import load_encoding
from spanloom.harmony.verify import ROW_COLUMNS, DiskDocuments, check_documents, check_rows, id_digests
from spanloom.inventory import AT_ONCE, check_inventory, listed_files
from spanloom.megatron.check import ParallelDatasets, open_parallel
from spanloom.megatron.indexed import open_indexed, require_megatron
from spanloom.o200k.asset import locate_asset
from spanloom.report.facts import dataset_facts
from spanloom.report.views import REPORT_HTML, REPORT_JSON, write_card, write_report
from spanloom.rows import RowsReader
from spanloom.storage import sha256_file

TOKENS_AT_ONCE = 1 << 20
SPLIT_SAMPLE = 256
"""Source rows of each shard that the split rule is applied to again."""

T = TypeVar("T")
Digests = npt.NDArray[np.uint64]
Shard = dict[str, Any]
"""A shard as the manifest has it."""

Progress = Callable[[int, int], None]
"""Called with the sequences checked so far, and the sequences there are."""


def validate_alignment(
    *,
    root: Path,
    source: Path | None = None,
    deep: int = 0,
    tokenizer: Path | None = None,
    report_file: Path | None = None,
    html_file: Path | None = None,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> Report:
    """Validates the dataset at `root`, pending or promoted, and promotes a pending manifest when there is no finding.

    The arguments are those of `validate_dataset` and `conclude`.
    """
    began = monotonic()
    report = validate_dataset(
        root, source=source, deep=deep, tokenizer=tokenizer, workers=workers, on_progress=on_progress
    )
    conclude(root, report, seconds=monotonic() - began, report_file=report_file, html_file=html_file)
    return report


def conclude(
    root: Path, report: Report, *, seconds: float, report_file: Path | None = None, html_file: Path | None = None
) -> None:
    """Writes down what validation found in `seconds`, and promotes a pending manifest when it found nothing.

    Writes the report to `report_file` (JSON) and `html_file` either way. Beside a pending manifest it writes the report
    too, and the card before it promotes.
    """
    written = manifest.read_any(root)
    facts = dataset_facts(root, written, report, timings={"validate": round(seconds, 3)})
    pending = (root / manifest.PENDING_NAME).exists()
    at_root = (root / REPORT_JSON, root / REPORT_HTML)
    if (report_file, html_file) != at_root or not pending:
        write_report(facts, json_file=report_file, html_file=html_file)
    if pending:
        write_report(facts, json_file=at_root[0], html_file=at_root[1])
        if report.clean:
            write_card(root, written["content"])
            manifest.promote(root)


def validate_dataset(
    root: Path,
    *,
    source: Path | None = None,
    deep: int = 0,
    tokenizer: Path | None = None,
    workers: int | None = None,
    on_progress: Progress | None = None,
) -> Report:
    """Checks a dataset, pending or promoted, and returns what was found. Writes nothing: a read-only root will do.

    With `source` (the `synth_harmony_v1` directory it was built from) the split rule is applied again to sampled source
    rows, and `deep` rows in all are rendered again by openai-harmony and compared token by token. With the transcripts
    that packed chat was built from, the first `deep` blocks of each shard are packed again and compared.
    Hashes files and checks shards in up to `workers` threads (None: one for each core), never in more than `AT_ONCE`.
    Raises ManifestError when there is no manifest to hold the files against.
    """
    require_megatron()
    content = manifest.read_any(root)["content"]
    report, beyond_files = Report(), Report()
    report.ran("inventory", sum(1 for _ in listed_files(content)))
    with ThreadPoolExecutor(min(workers or os.cpu_count() or 1, AT_ONCE)) as threads:
        inventory = check_inventory(root, content, threads)
        run = _Run(threads, content, on_progress)
        try:
            if content["family"] == PACKED_CHAT:
                _check_blocks(beyond_files, root, content, run)
                if source is not None:
                    _check_transcripts(beyond_files, root, content, source, deep, tokenizer)
            else:
                readable = _check_files(beyond_files, root, content, run)
                if source is not None:
                    _check_source(beyond_files, root, content, readable, source, deep, tokenizer, run)
            report.add(inventory)  # first: a file that is missing explains what follows from it
            report.include(beyond_files)
        except BaseException:
            run.stopped.set()  # else leaving the block would wait for all shards
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return report


class _Run:
    """Shards checked side by side: how far they are together, and whether to go on."""

    def __init__(self, threads: Executor, content: dict[str, Any], on_progress: Progress | None) -> None:
        self.stopped = threading.Event()
        self._threads, self._on_progress = threads, on_progress
        self._sequences = sum(split["sequences"] for split in content["totals"]["splits"].values())
        self._checked, self._lock = 0, threading.Lock()

    def each(self, report: Report, shards: list[Shard], check: Callable[[Report, Shard], T]) -> list[T]:
        """What `check` returns of each shard; what it reports is added in the order of the shards."""

        def reported(shard: Shard) -> tuple[Report, T]:
            own = Report()
            return own, check(own, shard)

        results = []
        for own, result in self._threads.map(reported, shards):
            report.include(own)
            results.append(result)
        return results

    def go_on(self) -> None:
        """Raises CancelledError when nobody waits for the rest."""
        if self.stopped.is_set():
            raise CancelledError

    def checked(self, sequences: int) -> None:
        """Counts sequences as checked; see `go_on`."""
        self.go_on()
        with self._lock:
            self._checked += sequences
            if self._on_progress:
                self._on_progress(self._checked, self._sequences)


@dataclass(frozen=True, kw_only=True)
class _Opened:
    """One shard of a split that can be read side by side with its rows."""

    split: str
    shard: int
    datasets: ParallelDatasets
    rows: RowsReader


@contextmanager
def _opened(report: Report, root: Path, content: dict[str, Any], split: str, shard: Shard) -> Iterator[_Opened | None]:
    """A split of one shard; None when it is empty or cannot be read. It is not kept open: Megatron maps each index.

    What is wrong around what the caller reads of it is added to the report: sequences against the manifest, rows that
    go on behind them.
    """
    number, counts = shard["shard"], shard["splits"][split]
    prefix = root / split / f"shard_{number:02d}"
    names = {name: (prefix.with_name(f"{prefix.name}_{name}"), dtype) for name, dtype in content["arrays"].items()}
    datasets = open_parallel(report, names, split=split, shard=number) if counts["sequences"] else None
    rows_file = prefix.with_name(f"{prefix.name}_rows.parquet")
    if datasets is None or not rows_file.is_file():  # a missing file is in the report already
        yield None
        return
    if datasets.lengths.size != counts["sequences"]:
        message = f"{datasets.lengths.size} sequences, the manifest says {counts['sequences']}"
        report.add([Finding(check="manifest", message=message, split=split, shard=number)])

    def fault(message: str) -> None:
        report.add([Finding(check="rows", message=message, split=split, shard=number)])

    try:
        rows = RowsReader(rows_file)
    except ArtifactError as unreadable:
        fault(unreadable.what)
        yield None
        return
    own = packed.ROW_COLUMNS if content["family"] == PACKED_CHAT else ROW_COLUMNS
    spans = [f"{name}_tokens" for name in content["span_names"]]
    if missing := [name for name in ("sequence", *own, "tokens", *spans) if name not in rows.names]:
        fault(f"rows.parquet has no column {', '.join(missing)}")
        yield None
        return
    try:
        yield _Opened(split=split, shard=number, datasets=datasets, rows=rows)
        if rows.take(1).num_rows:
            fault("rows.parquet goes on after the last document")
    except ArtifactError as unreadable:
        fault(unreadable.what)
    except pa.ArrowException as unreadable:  # a column of another type: all else that is read here is read by Megatron
        fault(f"rows.parquet cannot be read: {unreadable}")


def _check_span_tokens(report: Report, content: dict[str, Any], opened: _Opened, totals: npt.NDArray[np.int64]) -> None:
    counts = next(shard["splits"][opened.split] for shard in content["shards"] if shard["shard"] == opened.shard)
    said = list(counts["span_tokens"].values())
    if totals.tolist() != said:
        message = f"tokens per span are {totals.tolist()}, the manifest says {said}"
        report.add([Finding(check="manifest", message=message, split=opened.split, shard=opened.shard)])


def _check_files(report: Report, root: Path, content: dict[str, Any], run: _Run) -> set[tuple[str, int]]:
    """Every document of every shard and split, valid first: its ids must not turn up in train.

    Returns the splits and shards that could be read.
    """
    report.ran("documents", 0)
    report.ran("tokens", 0)
    numbers = [shard["shard"] for shard in content["shards"]]
    held_out = np.empty(0, dtype=np.uint64)
    readable: set[tuple[str, int]] = set()
    for split in ("valid", "train"):
        check = partial(_check_shard, root=root, content=content, split=split, held_out=held_out, run=run)
        found = run.each(report, content["shards"], check)
        readable |= {(split, number) for number, digests in zip(numbers, found, strict=True) if digests is not None}
        if split == "valid":
            held_out = np.concatenate([held_out, *(digests for digests in found if digests is not None)])
            held_out.sort()
        del found
    return readable


def _check_shard(
    report: Report,
    shard: Shard,
    *,
    root: Path,
    content: dict[str, Any],
    split: str,
    held_out: Digests,
    run: _Run,
) -> Digests | None:
    """Every document of a split of one shard. Returns the digests of the ids of valid, of another split none; None
    when it cannot be read."""
    valid_fraction = content["split"]["valid_fraction"]
    totals = np.zeros(len(content["span_names"]), dtype=np.int64)
    kept = [np.empty(0, dtype=np.uint64)]
    with _opened(report, root, content, split, shard) as opened:
        if opened is None:
            return None
        for first, lengths, arrays in opened.datasets.batches(TOKENS_AT_ONCE):
            documents = DiskDocuments(split=split, shard=opened.shard, first=first, lengths=lengths, **arrays)
            rows = opened.rows.take(lengths.size)
            digests = id_digests(rows)
            report.ran("documents", lengths.size)
            report.ran("tokens", documents.tokens.size)
            report.add(check_documents(documents))
            report.add(check_rows(documents, rows, digests, valid_fraction))
            totals += [np.count_nonzero(documents.span == span) for span in range(totals.size)]
            if split == "valid":
                kept.append(digests)
            else:
                both = np.flatnonzero(_among(digests, held_out)).tolist()
                report.add(documents.finding("disjoint", "this synth_id stands in valid too", at) for at in both)
            run.checked(lengths.size)
        _check_span_tokens(report, content, opened, totals)
    return np.concatenate(kept)


def _among(values: npt.NDArray[Any], ordered: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of `values` stand in `ordered`, which is sorted and long: looked up, not sorted anew for each batch."""
    if not ordered.size:
        return np.zeros(values.size, dtype=np.bool_)
    found: npt.NDArray[np.bool_] = ordered[np.minimum(np.searchsorted(ordered, values), ordered.size - 1)] == values
    return found


def _check_source(
    report: Report,
    root: Path,
    content: dict[str, Any],
    readable: set[tuple[str, int]],
    source: Path,
    deep: int,
    tokenizer: Path | None,
    run: _Run,
) -> None:
    shards = content["shards"]
    given = open_source(source, shards=len(shards))
    if given.manifest_sha256 != content["input"]["manifest_sha256"]:
        report.add([Finding(check="source", message="the dataset was built from another source", file=str(source))])
        return
    encoding = load_encoding(locate_asset(tokenizer)) if deep else None
    shares = {shard["shard"]: deep // len(shards) + (index < deep % len(shards)) for index, shard in enumerate(shards)}

    def check(own: Report, shard: Shard) -> None:
        number, rows_read = shard["shard"], shard["rows_read"]

        def read_document(split: str, sequence: int) -> dict[str, npt.NDArray[Any]]:
            run.go_on()
            return {
                name: open_indexed(root / split / f"shard_{number:02d}_{name}").get(sequence) for name in ARRAY_DTYPES
            }

        sampled = min(max(SPLIT_SAMPLE, shares[number]), rows_read)
        own.ran("source rows", sampled)
        own.ran("rows rendered again", min(shares[number], sampled))
        own.add(
            check_sample(
                shard=given.shards[number],
                rows_read=rows_read,
                root=root,
                splits={
                    split: root / split / f"shard_{number:02d}_rows.parquet"
                    for split in shard["splits"]
                    if (split, number) in readable
                },
                rejected=shard["rejects_file"] and Path(shard["rejects_file"]["path"]),
                valid_fraction=content["split"]["valid_fraction"],
                count=SPLIT_SAMPLE,
                deep=shares[number],
                encoding=encoding,
                read_document=read_document,
            )
        )

    run.each(report, shards, check)


def _check_blocks(report: Report, root: Path, content: dict[str, Any], run: _Run) -> None:
    """Every block of every shard of packed chat, and the counts of the packing."""
    report.ran("documents", 0)
    report.ran("tokens", 0)
    for split in content["totals"]["splits"]:
        run.each(report, content["shards"], partial(_check_blocks_of, root=root, content=content, split=split, run=run))


def _check_blocks_of(
    report: Report, shard: Shard, *, root: Path, content: dict[str, Any], split: str, run: _Run
) -> None:
    number, rules = shard["shard"], packed.Rules.of(content)
    with _opened(report, root, content, split, shard) as opened:
        if opened is None:
            return
        lengths = opened.datasets.lengths
        if (other := np.flatnonzero(lengths != rules.block_size)).size:
            message = f"{lengths[other[0]]} tokens, blocks have {rules.block_size}"
            report.add(
                [Finding(check="block_size", message=message, split=split, shard=number, sequence=int(other[0]))]
            )
            return  # what is no block cannot be looked at as one
        totals = np.zeros(len(content["span_names"]), dtype=np.int64)
        found = dict.fromkeys(("blocks", "injected_tokens", "padding_tokens", "lossless_blocks"), 0)
        for first, lengths, arrays in opened.datasets.batches(TOKENS_AT_ONCE):
            rows = opened.rows.take(lengths.size)
            if rows.num_rows != lengths.size:
                message = f"rows.parquet ends after {rows.num_rows} of these {lengths.size} blocks"
                report.add([Finding(check="rows", message=message, split=split, shard=number, sequence=first)])
                break
            blocks = _blocks(opened, first, arrays, rows, rules)
            report.ran("documents", lengths.size)
            report.ran("tokens", blocks.tokens.size)
            report.add(packed.check_blocks(blocks, rules))
            report.add(packed.check_rows(blocks, rows, rules))
            totals += np.bincount(blocks.lossmask.reshape(-1), minlength=totals.size)[: totals.size]
            found["blocks"] += lengths.size
            found["injected_tokens"] += int(blocks.injected.sum())
            found["padding_tokens"] += int(blocks.padding.sum())
            found["lossless_blocks"] += int((~blocks.lossmask.any(axis=1)).sum())
            run.checked(lengths.size)
        _check_span_tokens(report, content, opened, totals)
        _check_packing(report, content, opened, found, rules)


def _blocks(
    opened: _Opened, first: int, arrays: dict[str, npt.NDArray[Any]], rows: pa.Table, rules: packed.Rules
) -> packed.CheckedBlocks:
    return packed.CheckedBlocks(
        split=opened.split,
        shard=opened.shard,
        first=first,
        tokens=arrays["tokens"].reshape(-1, rules.block_size),
        lossmask=arrays["lossmask"].reshape(-1, rules.block_size),
        injected=rows.column("injected_tokens").to_numpy(),
        padding=rows.column("padding_tokens").to_numpy(),
    )


def _check_packing(
    report: Report, content: dict[str, Any], opened: _Opened, found: dict[str, int], rules: packed.Rules
) -> None:
    """The packing counts of the manifest that can be counted on the disk."""
    said = next(shard["packing"] for shard in content["shards"] if shard["shard"] == opened.shard)
    for name, count in found.items():
        if name == "lossless_blocks" and not rules.keep_lossless:
            continue  # they are counted, and not here
        if said[name] != count:
            message = f"{name} is {count}, the manifest says {said[name]}"
            report.add([Finding(check="manifest", message=message, split=opened.split, shard=opened.shard)])


def _check_transcripts(
    report: Report, root: Path, content: dict[str, Any], source: Path, deep: int, tokenizer: Path | None
) -> None:
    """The transcripts are those of the manifest, and the first `deep` blocks of each shard are what they give."""
    files = transcript_files(source)
    hashes = [sha256_file(file) for file in files]
    report.ran("source files", len(files))
    if hashes != [file["sha256"] for file in content["input"]["shards"]]:
        report.add([Finding(check="source", message="the dataset was built from another source", file=str(source))])
        return
    if not deep:
        return
    rules = packed.Rules.of(content)
    encode = _encoding_of(content, tokenizer)
    shards = len(content["shards"])
    for split, shard in product(content["totals"]["splits"], content["shards"]):
        # What is wrong with the files is in the report already.
        with _opened(Report(), root, content, split, shard) as opened:
            if opened is None or (opened.datasets.lengths != rules.block_size).any():
                continue
            count = min(deep, opened.datasets.lengths.size)
            rows = opened.rows.take(count)
            if rows.num_rows != count:
                continue
            arrays = {name: np.concatenate(data[0:count]) for name, data in opened.datasets.datasets.items()}
            records = (encode(text) for text in islice(_texts(files), opened.shard, None, shards) if text is not None)
            report.ran("blocks packed again", count)
            report.add(packed.check_source(_blocks(opened, 0, arrays, rows, rules), records, rules))


def _texts(files: list[Path]) -> Iterator[str | None]:
    """All records of the stream; the faults that the build skipped are skipped here too."""
    return (text for file in files for text in read_records(file, on_error="skip"))


def _encoding_of(content: dict[str, Any], tokenizer: Path | None) -> Callable[[str], list[int]]:
    """One record → its tokens with EOS, by the tokenizer that made the dataset's."""
    loaded = tokenizer_of(content["tokenizer"], tokenizer)

    def encode(text: str) -> list[int]:
        tokens: list[int] = loaded.encode([text]).tokens.tolist()
        return tokens

    return encode
