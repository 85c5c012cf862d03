"""All six steps on one machine: a `synth_harmony_v1` or `harmony_conversations_v1` folder → a validated dataset.

In: `BuildOptions`. Out: the dataset under `out`; its manifest is written only if validation has no findings.
Intermediates are under `out/.work`. They are kept when a build stops, so that the same command can resume it, and
removed when the build is done.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from spanloom import workers
from spanloom.building.ordered import in_order
from spanloom.conversations.source.folder import Source
from spanloom.dataset import manifest
from spanloom.dataset.family import DatasetFamily
from spanloom.dataset.manifest import Manifest
from spanloom.dataset.root.layout import REPORT_HTML, REPORT_JSON
from spanloom.dataset.root.lock import (
    NEW_NAME,
    BuildRecord,
    check_apart,
    clear_leftovers,
    held_root,
    is_work_of,
    read_record,
    remove_work,
)
from spanloom.dataset.root.replace import check_replaceable, finish_replacing, is_replacing, replace_dataset
from spanloom.dataset.validate.dataset import validate_dataset
from spanloom.errors import ConflictError, SourceError
from spanloom.families.harmony import chat_dataset, dataset
from spanloom.families.harmony.build_root import (
    SPLIT_NAME,
    check_disk,
    claim_work,
    differs,
    record_of,
    work_names,
)
from spanloom.families.harmony.contract.config import dataset_config
from spanloom.families.harmony.contract.profile import (
    HARMONY_CHAT,
    SYNTH_KD,
    Profile,
    profile_of_family,
    profile_of_source,
)
from spanloom.families.harmony.contract.source import open_source
from spanloom.families.harmony.options import BuildOptions, check_options, settled
from spanloom.families.harmony.render.routes import ROWS_WORTH_LOADING, loading_ahead, worker_bytes
from spanloom.families.harmony.steps.assemble_manifest import assemble_manifest
from spanloom.families.harmony.steps.assemble_split import assemble_split
from spanloom.families.harmony.steps.render_shard import render_shard
from spanloom.families.harmony.steps.write_indexed import write_indexed
from spanloom.findings import Report
from spanloom.machine import workers_that_fit
from spanloom.megatron.readers import ReaderChoice, chosen_reader
from spanloom.megatron.validator import Validator, validating_process
from spanloom.provenance import require_git_sha
from spanloom.report.pages.plots import load_plotting
from spanloom.report.progress import Mode, Progress
from spanloom.report.views import is_own_view
from spanloom.split import TRAIN, VALID, empty_valid
from spanloom.steps.validate_alignment import BuildResult, conclude
from spanloom.tokenizers.o200k.asset import locate_asset, verify_asset
from spanloom.workers import Counters, Pool, process_pool

FAMILIES: dict[Profile, DatasetFamily] = {SYNTH_KD: dataset, HARMONY_CHAT: chat_dataset}
"""Profile → the module that validation and reports call."""


def build(options: BuildOptions, progress: Progress | None = None, validator: Validator | None = None) -> BuildResult:
    """Builds and validates a dataset. The same options and source give the same bytes with any number of workers.

    `validator`: the validating process, if it is already running.

    Raises a SpanloomError before any work for an invalid tokenizer, source, option or root, or a lack of disk space;
    later for rows, duplicates, conflicts and dead workers. Findings do not raise: they are in the report.
    """
    workers.end_importing_worker()
    progress = progress or Progress(mode=Mode.SILENT)
    check_options(options)
    require_git_sha(allow_unknown=options.allow_unknown_sha)
    chosen_reader(options.reader)
    check_apart(options.source, options.root)
    # Rendering and validation check the special tokens; validation also encodes texts of this dataset with tiktoken.
    asset = verify_asset(locate_asset(options.tokenizer))
    source = open_source(options.source, shards=options.shards)
    options = settled(options, source)
    root = options.root
    check_apart(options.source, root)
    for shard in source.shards:
        if not shard.rows:
            progress.say(f"warning: {shard.where} has 0 rows; it will have no files")
    identity = {
        "config": dataset_config(
            profile_of_source(source.format),
            shards=len(source.shards),
            caps=options.caps,
            valid_fraction=options.valid_fraction,
            rules=options.rules,
        ),
        "manifest_sha256": source.manifest_sha256,
        "renderer": options.renderer,
    }
    record = record_of(options, identity)
    with held_root(root) as work:
        if replaced := is_replacing(work):
            progress.say(f"going on to replace the dataset at {root} by the one under {work / NEW_NAME}")
            _say_kept(root, finish_replacing(root, work, is_own_view), progress)
        finished = manifest.read(root) if (root / manifest.MANIFEST_NAME).exists() else None
        if finished is not None and (
            not options.overwrite
            or (replaced and options.resume and differs(root, finished.content, identity, options) is None)
        ):
            _check_same(options, record, finished, work)
            progress.say(f"{root} holds this very dataset already; validating it")
            if is_work_of(work, record):
                clear_leftovers(root, work, record)
            with _ready(validator, options.reader) as process:
                report = _validate(options, asset, root, finished, process, progress)
            result = BuildResult(root=root, manifest=finished, report=report, already_built=True)
        else:
            if finished is not None:
                check_replaceable(root, finished.content, record.files)
            if options.check_disk:
                check_disk(source, options, root if finished is None else work)
            claim_work(root, work, record, finished.content if finished else None, resume=options.resume)
            target = root
            if finished is not None:
                target = work / NEW_NAME
                progress.say(f"the dataset at {root} stays until the new one, made under {target}, is validated")
                # Left by a run that was killed before it replaced anything.
                (target / manifest.MANIFEST_NAME).unlink(missing_ok=True)
            try:
                with _ready(validator, options.reader) as process:
                    result = _run_steps(options, source, asset, target, work, process, progress)
            except BaseException:
                clear_leftovers(root, work, record)  # terminated workers could not remove their own files
                raise
            if result.report.clean and finished is not None:
                _say_kept(root, replace_dataset(root, work, is_own_view), progress)
                result = replace(result, root=root)
        if result.report.clean:
            if not options.keep_work and is_work_of(work, record):
                for path in remove_work(root):
                    progress.say(f"warning: {path} was not made by this build and stays")
            _warn_of_empty_splits(result, options, progress)
    return result


def _say_kept(root: Path, names: Iterable[str], progress: Progress) -> None:
    for name in names:
        progress.say(f"warning: {root / name} was not made by Spanloom, or was edited; it stays as it is")


def _check_same(options: BuildOptions, record: BuildRecord, finished: Manifest, work: Path) -> None:
    """Raises ConflictError if the finished dataset at the root is not the requested one."""
    root = options.root
    begun = read_record(work)  # exists until a run finishes: if it was killed, the same command finishes it
    resume = options.resume or (begun is not None and begun.identity == record.identity)
    difference = (
        differs(root, finished.content, record.identity, options) if resume else "--no-resume asks to build again"
    )
    if difference is not None:
        raise ConflictError(
            f"the output root already holds another dataset: {difference}",
            where=str(root),
            remedy="give another --out, or replace it with --overwrite",
        )


def _run_steps(
    options: BuildOptions,
    source: Source,
    asset: Path,
    root: Path,
    work: Path,
    validator: Validator,
    progress: Progress,
) -> BuildResult:
    count = len(source.shards)
    shards = range(count)
    counters = Counters(count)
    rows = options.caps.rows_read([shard.rows for shard in source.shards])
    rendered, ids, inventories = (
        [work / name for name in names] for names in zip(*map(work_names, shards), strict=True)
    )

    ahead = loading_ahead(options.renderer, asset, sum(rows))
    workers = options.workers or _useful_workers(profile_of_source(source.format), sum(rows))
    with process_pool(workers, counters, ahead=ahead) as pool:
        with progress.stage("render"), progress.rendering(counters, rows):

            def render(shard: int) -> dict[str, Any]:
                return render_shard(
                    source=options.source,
                    shard=shard,
                    rendered=rendered[shard],
                    ids=ids[shard],
                    pool=pool,
                    tokenizer=asset,
                    shards=count,
                    rules=options.rules,
                    renderer=options.renderer,
                    audit_fraction=options.audit_fraction,
                    caps=options.caps,
                    max_rejects=options.max_rejects,
                    resume=options.resume,
                )

            summaries = _for_each_shard(render, count, pool)
            for summary in summaries:
                if summary["source"]["manifest_sha256"] != source.manifest_sha256:
                    raise SourceError(
                        "the source's manifest has changed since the build began",
                        where=str(options.source),
                        remedy="run the build again once the source no longer changes, with --no-resume",
                    )
        with progress.stage("split"):
            split = assemble_split(
                ids=ids,
                split=work / SPLIT_NAME,
                valid_fraction=options.valid_fraction,
                on_duplicate=options.on_duplicate,
            )
        if split["repeated_rows"]:
            progress.say(
                f"warning: {split['repeated_rows']:,} rows repeat an id that an earlier row has; all were kept"
            )
        with progress.stage("write"), progress.writing(counters, [summary["rows"] for summary in summaries]):
            write = partial(_write_shard, root, work, options)
            for _ in in_order(shards, write, pool, what=lambda shard: f"writing shard {shard:02d}"):
                pass
        pool.abort()  # the workers have nothing left to do; a normal exit would take a quarter of a second

    (root / manifest.PENDING_NAME).unlink(missing_ok=True)  # of a stopped build: it has a date, and is made again
    written = assemble_manifest(
        inventories=inventories,
        split=work / SPLIT_NAME,
        root=root,
        allow_unknown_sha=options.allow_unknown_sha,
        environment={
            "source": options.source_as_given or str(options.source),
            "tokenizer": str(asset),
            "workers": workers,
            "timings": dict(progress.timings),
        },
    )
    report = _validate(options, asset, root, written, validator, progress)
    return BuildResult(root=root, manifest=written, report=report)


def _write_shard(root: Path, work: Path, options: BuildOptions, shard: int) -> None:
    rendered, ids, inventory = (work / name for name in work_names(shard))
    write_indexed(
        rendered=rendered,
        ids=ids,
        valid_fraction=options.valid_fraction,
        root=root,
        inventory=inventory,
        resume=options.resume,
    )


def _useful_workers(profile: Profile, rows: int) -> int:
    """As many workers as CPUs and memory allow, but not so many that the work is done before the last has loaded its
    libraries."""
    return max(1, min(workers_that_fit(worker_bytes(profile)), rows // ROWS_WORTH_LOADING))


@contextmanager
def _ready(validator: Validator | None, reader: ReaderChoice) -> Iterator[Validator]:
    """The validating process, started if needed. While workers render, it imports the checks, and this process imports
    matplotlib."""
    with validating_process(reader) if validator is None else nullcontext(validator) as process:
        process.pool.submit(_load_checks)
        # Not a daemon: if the build fails at once, Python would stop this thread inside matplotlib's C++ code, and
        # abort() would end the process.
        threading.Thread(target=load_plotting).start()
        yield process


def _validate(
    options: BuildOptions, asset: Path, root: Path, written: Manifest, validator: Validator, progress: Progress
) -> Report:
    documents = written.content.totals.sequences
    with progress.stage("validate"), progress.checking(validator.counters, documents):
        future = validator.pool.submit(
            _validate_here,
            root,
            source=options.source,
            deep=options.deep,
            tokenizer=asset,
            workers=options.workers,
            reader=options.reader,
        )
        report, seconds = validator.pool.result(future, "validation")
        conclude(
            root,
            FAMILIES[profile_of_family(written.content.family)],
            report,
            seconds=seconds,
            report_file=root / REPORT_JSON,
            html_file=root / REPORT_HTML,
            name=options.root.resolve().name,
        )
    return report


def _load_checks() -> None:
    """Runs in the validating process: imports what it needs besides Megatron's reader."""
    from spanloom.families.harmony import tiktoken_encoding  # noqa: F401


def _validate_here(root: Path, **arguments: Any) -> tuple[Report, float]:
    """Runs `validate_dataset` in a worker and updates its counters. Returns the report and the duration in seconds."""
    counters, checked = workers.counters_here, 0

    def count(done: int, _: int) -> None:
        nonlocal checked
        if counters:
            counters.add(0, checked=done - checked)
        checked = done

    began = monotonic()
    family = FAMILIES[profile_of_family(manifest.read_any(root).content.family)]
    report = validate_dataset(root, family, **arguments, on_progress=count)
    return report, monotonic() - began


def _for_each_shard(work: Callable[[int], dict[str, Any]], shards: int, pool: Pool) -> list[dict[str, Any]]:
    """Runs `work` for all shards in parallel, in threads that only wait for the pool; the first failure stops all."""
    with ThreadPoolExecutor(shards) as threads:
        try:  # includes the submits: with many shards they take seconds
            futures = [threads.submit(work, shard) for shard in range(shards)]
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = [future for future in futures if future in finished and future.exception() is not None]
        except BaseException:
            pool.abort()  # otherwise leaving the block would wait for threads that wait for the workers
            raise
        if failed:
            pool.abort()
            failed[0].result()
    return [future.result() for future in futures]


def _warn_of_empty_splits(result: BuildResult, options: BuildOptions, progress: Progress) -> None:
    splits = result.manifest.content.totals.splits
    if not splits[TRAIN].sequences and not splits[VALID].sequences:
        progress.say("warning: the dataset holds no documents at all")
    elif not splits[VALID].sequences and options.valid_fraction > 0:
        progress.say(empty_valid(splits[TRAIN].sequences, options.valid_fraction))
