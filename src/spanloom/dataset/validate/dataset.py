"""Validates every file, token and label of a dataset of any family.

In: a dataset root, its family, its source if available. Out: a `Report`. Reads the arrays through Megatron's own
IndexedDataset, or through an independent reader if Megatron is not installed. Writes nothing.

Every value under `content` of a manifest is recomputed, or checked against a recomputed value. `not_checkable.toml`
names the exceptions, with the reason; those of one family are in the file of this name in its `verify`.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import Any

from spanloom import workers as processes
from spanloom.dataset import manifest
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.root.inventory import AT_ONCE, check_inventory
from spanloom.dataset.validate.checks import DatasetCheck, GivenSource, joined_checks
from spanloom.dataset.validate.processes import checked_shards
from spanloom.findings import Report
from spanloom.machine import usable_cpus
from spanloom.megatron.readers import ReaderChoice, chosen_reader
from spanloom.workers import OnProgress


def validate_dataset(
    root: Path,
    family: DatasetFamily,
    *,
    source: Path | None = None,
    deep: int = 0,
    tokenizer: Path | None = None,
    workers: int | None = None,
    reader: ReaderChoice = "auto",
    on_progress: OnProgress | None = None,
    scratch: Path | None = None,
) -> Report:
    """Checks a dataset, pending or promoted, and returns the findings. Writes nothing: a read-only root works.

    `source`: the source of the dataset; `deep` of its rows, or the first `deep` blocks of each shard, are rebuilt and
    compared token by token. `reader`: how the arrays are read, see `spanloom.megatron.readers`; the report names it.
    `on_progress`: receives the number of sequences checked so far, and their total. Checks shards in `workers`
    processes (None: as many as CPUs and memory allow), where they are worth it; hashes files in as many threads, at
    most `AT_ONCE`. `scratch`: folder for digests that exceed the memory limit.
    Raises ManifestError if there is no manifest.
    """
    chosen = chosen_reader(reader)
    content = manifest.read_any(root).content
    check = DatasetCheck(
        root=root,
        content=content,
        family=family,
        source=None if source is None else GivenSource(place=source, deep=deep, tokenizer=tokenizer),
        reader=chosen,
        scratch=scratch,
    )
    with ThreadPoolExecutor(min(workers or usable_cpus(), AT_ONCE)) as threads:
        inventory = check_inventory(root, content.listed_files(), content.totals.splits, threads)
        try:
            with checked_shards(check, workers, on_progress) as checked:
                return joined_checks(checked.check, checked.run, checked.ids, checked.contents, inventory)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)  # otherwise it would hash all files first
            raise


def validated(root: Path, family: DatasetFamily, **options: Any) -> tuple[Report, float]:
    """Runs `validate_dataset` in a process of its own, for whose parent it counts. Returns the seconds too."""
    counters, checked = processes.counters_here, 0

    def count(done: int, _: int) -> None:
        nonlocal checked
        if counters:
            counters.add(0, checked=done - checked)
        checked = done

    began = monotonic()
    report = validate_dataset(root, family, on_progress=count, **options)
    return report, monotonic() - began
