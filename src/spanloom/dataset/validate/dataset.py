"""Validates every file, token and label of a dataset of any family.

In: a dataset root, its family, its source if available. Out: a `Report`. Reads the arrays through Megatron's own
IndexedDataset, or through an independent reader if Megatron is not installed. Writes nothing.

Every value under `content` of a manifest is recomputed, or checked against a recomputed value. `NOT_CHECKABLE` names
the exceptions, with the reason.
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

NOT_CHECKABLE = {
    "environment.*": "says when, where and with what; decides no byte of the data",
    "content.git_sha": "nothing in a dataset tells which code wrote it",
    "content.renderer.version": "the versions of the packages leave no trace in the tokens; the packages are checked",
    "content.renderer.fallback_rows": "how a row was rendered leaves no trace; held to the number of documents",
    "content.renderer.audited_rows": "how many rows were audited leaves no trace; held to the number of rows",
    "content.config.caps": "a cap that no row and no token reached decides nothing; one that was reached is checked",
    "content.input": "it is checked against the source where --source gives it; without it, its rows are"
    " checked against rows_read",
    "content.*.rejected": "of packed chat: which records could not be read is not worked out again; the number of rows"
    " is its bound",
    "content.config.history": "of harmony_chat: without --source, `serve` is read off what documents show, the others"
    " off which of their runs are trained; where another history would give the same documents, it decides nothing",
    "content.config.turns": "of harmony_chat: without --source, which of a conversation's runs became documents does"
    " not tell whether there were more",
    "content.totals.cutting": "of harmony_chat: without --source, how many runs, left out and untrained messages"
    " conversations have is not counted again; the runs that documents train are a bound of runs, and equal where"
    " everything is trained",
    "content.totals.packing": "without --source, and with --deep for fewer than all blocks, what came in and what was"
    " given up, dropped or left over are checked against each other alone, and so is `stops`",
}
"""Manifest fields that validation cannot check, or only in part, and why; a family may name more."""


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
