"""Step 6: is what lies on the disk what it must be? Only then does the pending manifest become the manifest.

In: a dataset root, its source where it is at hand. Out: a `Report`. Reads the files through Megatron's own
IndexedDataset, reads spans off the tokens alone, and renders sampled rows again through openai-harmony: no code
here rendered, shifted or wrote any of it.
"""

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom import manifest
from spanloom.findings import Finding, Report
from spanloom.harmony.config import ARRAY_DTYPES
from spanloom.harmony.resample import check_sample
from spanloom.harmony.source import open_source
from spanloom.harmony.tokenizer import load_encoding
from spanloom.harmony.verify import DiskDocuments, RowsReader, check_documents, check_rows, id_fingerprints
from spanloom.inventory import check_inventory, listed_files
from spanloom.megatron.check import open_parallel
from spanloom.megatron.indexed import open_indexed, require_megatron
from spanloom.o200k.asset import locate_asset
from spanloom.report.facts import dataset_facts
from spanloom.report.views import REPORT_HTML, REPORT_JSON, write_card, write_report

TOKENS_AT_ONCE = 1 << 20
SPLIT_SAMPLE = 256
"""Source rows of each shard that the split rule is applied to again."""

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
    on_progress: Progress | None = None,
) -> Report:
    """Validates the dataset at `root`, pending or promoted, and promotes a pending manifest when there is no finding.

    Writes the report to `report_file` (JSON) and `html_file` either way. Beside a pending manifest it writes the report
    too, and the card before it promotes. The other arguments are those of `validate_dataset`.
    """
    written = manifest.read_any(root)
    began = monotonic()
    report = validate_dataset(root, source=source, deep=deep, tokenizer=tokenizer, on_progress=on_progress)
    facts = dataset_facts(root, written, report, timings={"validate": round(monotonic() - began, 3)})
    write_report(facts, json_file=report_file, html_file=html_file)
    if (root / manifest.PENDING_NAME).exists():
        write_report(facts, json_file=root / REPORT_JSON, html_file=root / REPORT_HTML)
        if report.clean:
            write_card(root, written["content"])
            manifest.promote(root)
    return report


def validate_dataset(
    root: Path,
    *,
    source: Path | None = None,
    deep: int = 0,
    tokenizer: Path | None = None,
    on_progress: Progress | None = None,
) -> Report:
    """Checks a dataset, pending or promoted, and returns what was found. Writes nothing: a read-only root will do.

    With `source` (the `synth_harmony_v1` directory it was built from) the split rule is applied again to sampled source
    rows, and `deep` rows in all are rendered again by openai-harmony and compared token by token.
    Raises ManifestError when there is no manifest to hold the files against.
    """
    require_megatron()
    content = manifest.read_any(root)["content"]
    report = Report()
    report.ran("inventory", sum(1 for _ in listed_files(content)))
    report.add(check_inventory(root, content))
    readable = _check_files(report, root, content, on_progress)
    if source is not None:
        _check_source(report, root, content, readable, source, deep, tokenizer)
    return report


def _check_files(
    report: Report, root: Path, content: dict[str, Any], on_progress: Progress | None
) -> set[tuple[str, int]]:
    """Every document of every shard and split, valid first: its ids must not turn up in train.

    Returns the splits and shards that could be read. None of them is kept open: Megatron maps each index.
    """
    valid_fraction = content["split"]["valid_fraction"]
    sequences = sum(split["sequences"] for split in content["totals"]["splits"].values())
    checked = 0
    report.ran("documents", 0)
    report.ran("tokens", 0)
    held_out = np.empty(0, dtype="S16")
    readable: set[tuple[str, int]] = set()
    for split in ("valid", "train"):
        fingerprints: list[npt.NDArray[Any]] = []
        for shard in content["shards"]:
            number, counts = shard["shard"], shard["splits"][split]
            if not counts["sequences"]:
                continue
            prefix = root / split / f"shard_{number:02d}"
            names = {name: (prefix.with_name(f"{prefix.name}_{name}"), dtype) for name, dtype in ARRAY_DTYPES.items()}
            datasets = open_parallel(report, names, split=split, shard=number)
            rows_file = prefix.with_name(f"{prefix.name}_rows.parquet")
            if datasets is None or not rows_file.is_file():  # a missing file is in the report already
                continue
            readable.add((split, number))
            if datasets.lengths.size != counts["sequences"]:
                message = f"{datasets.lengths.size} sequences, the manifest says {counts['sequences']}"
                report.add([Finding(check="manifest", message=message, split=split, shard=number)])
            reader = RowsReader(rows_file)
            totals = np.zeros(len(content["span_names"]), dtype=np.int64)
            for first, lengths, arrays in datasets.batches(TOKENS_AT_ONCE):
                documents = DiskDocuments(split=split, shard=number, first=first, lengths=lengths, **arrays)
                rows = reader.take(lengths.size)
                report.ran("documents", lengths.size)
                report.ran("tokens", documents.tokens.size)
                report.add(check_documents(documents))
                report.add(check_rows(documents, rows, valid_fraction))
                totals += np.bincount(documents.span, minlength=totals.size)[: totals.size]
                found = id_fingerprints(rows)
                if split == "valid":
                    fingerprints.append(found)
                elif (both := np.flatnonzero(_among(found, held_out))).size:
                    report.add(
                        documents.finding("disjoint", "this synth_id stands in valid too", at) for at in both.tolist()
                    )
                checked += lengths.size
                if on_progress:
                    on_progress(checked, sequences)
            if reader.take(1).num_rows:
                message = "rows.parquet goes on after the last document"
                report.add([Finding(check="rows", message=message, split=split, shard=number)])
            said = list(counts["span_tokens"].values())
            if totals.tolist() != said:
                message = f"tokens per span are {totals.tolist()}, the manifest says {said}"
                report.add([Finding(check="manifest", message=message, split=split, shard=number)])
        if split == "valid" and fingerprints:
            held_out = np.sort(np.concatenate(fingerprints))
    return readable


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
) -> None:
    shards = content["shards"]
    given = open_source(source, shards=len(shards))
    if given.manifest_sha256 != content["input"]["manifest_sha256"]:
        report.add([Finding(check="source", message="the dataset was built from another source", file=str(source))])
        return
    encoding = load_encoding(locate_asset(tokenizer)) if deep else None
    for index, shard in enumerate(shards):
        number = shard["shard"]
        share = deep // len(shards) + (index < deep % len(shards))

        def read_document(split: str, sequence: int, number: int = number) -> dict[str, npt.NDArray[Any]]:
            return {
                name: open_indexed(root / split / f"shard_{number:02d}_{name}").get(sequence) for name in ARRAY_DTYPES
            }

        sampled = min(max(SPLIT_SAMPLE, share), shard["rows_read"])
        report.ran("source rows", sampled)
        report.ran("rows rendered again", min(share, sampled))
        report.add(
            check_sample(
                shard=given.shards[number],
                rows_read=shard["rows_read"],
                root=root,
                splits={
                    split: root / split / f"shard_{number:02d}_rows.parquet"
                    for split in shard["splits"]
                    if (split, number) in readable
                },
                rejected=shard["rejects_file"] and Path(shard["rejects_file"]["path"]),
                valid_fraction=content["split"]["valid_fraction"],
                count=SPLIT_SAMPLE,
                deep=share,
                encoding=encoding,
                read_document=read_document,
            )
        )
