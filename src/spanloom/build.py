"""All six steps on one machine: a `synth_harmony_v1` folder → a validated dataset.

In: `BuildOptions`. Out: the dataset under `out`, with its manifest only when validation found nothing.
Intermediates lie under `out/.work`, are kept when a build stops, so that the same command goes on where it stopped, and
are cleared when it is done.
"""

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from spanloom import manifest, workers
from spanloom.errors import ConflictError, SpanloomError, StorageError
from spanloom.findings import Report
from spanloom.harmony.audit import AUDIT_FRACTION, check_fraction
from spanloom.harmony.caps import Caps
from spanloom.harmony.config import dataset_config
from spanloom.harmony.rejects import reject_limit
from spanloom.harmony.render import DEFAULT_RENDERER, check_renderer, loading_ahead, renderer_version
from spanloom.harmony.source import EXPECTED_SHARDS, Source, open_source, text_bytes
from spanloom.inventory import first_damage, listed_files
from spanloom.megatron.indexed import load_reader, require_megatron
from spanloom.provenance import git_sha, readable_json, require_git_sha
from spanloom.report.plots import load_plotting
from spanloom.report.progress import Mode, Progress
from spanloom.report.views import REPORT_HTML, REPORT_JSON, remove_views
from spanloom.split import valid_threshold
from spanloom.steps.assemble_manifest import assemble_manifest
from spanloom.steps.assemble_split import ON_DUPLICATE, assemble_split
from spanloom.steps.render_shard import render_shard
from spanloom.steps.validate_alignment import conclude, validate_dataset
from spanloom.steps.verify_tokenizer import verify_tokenizer
from spanloom.steps.write_indexed import write_indexed
from spanloom.storage import clear_temporaries, free_bytes, write_atomically
from spanloom.storage.root_lock import LOCK_NAME, check_apart, held_root, remove_work
from spanloom.workers import Counters, Pool, process_pool

DEFAULT_SOURCE = Path("data/synth_harmony")
DEFAULT_ROOT = Path("data/megatron/synth_kd_v1")
DEFAULT_CAPPED_ROOT = Path("data/megatron/synth_kd_v1_smoke")
DEFAULT_DEEP = 64

# What a token takes on disk at the worst moment: 4 + 1 + 1 bytes in the .bin files, and the rendered parts (4 bytes
# where lz4 finds nothing to pack, mask and span next to nothing), which are cleared only at the end. Conversations
# have 3.6 (much code and numbers) to 5.6 bytes of JSON a token (real SYNTH): 3.5 errs on the safe side.
BYTES_PER_TOKEN = 6 + 4.5
TEXT_BYTES_PER_TOKEN = 3.5
BYTES_PER_ROW = 200

ROWS_PER_WORKER = 5000
"""A worker takes more than a second to load its libraries, in which another renders about so many rows of SYNTH."""


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """What to build. `out` None is the default root, or the smoke root when the run is capped; `source_as_given` is
    the URI that `source` was staged from, for the record; `workers` None is one for each core, fewer for few rows."""

    source: Path = DEFAULT_SOURCE
    source_as_given: str | None = None
    out: Path | None = None
    tokenizer: Path | None = None
    shards: int = EXPECTED_SHARDS
    valid_fraction: float = 0.001
    caps: Caps = field(default_factory=Caps)
    max_rejects: str = "0"
    on_duplicate: str = "error"
    renderer: str = DEFAULT_RENDERER
    audit_fraction: float = AUDIT_FRACTION
    workers: int | None = None
    deep: int = DEFAULT_DEEP
    resume: bool = True
    overwrite: bool = False
    keep_work: bool = False
    allow_unknown_sha: bool = False
    check_disk: bool = True

    @property
    def root(self) -> Path:
        return self.out or (DEFAULT_CAPPED_ROOT if self.caps.any else DEFAULT_ROOT)


@dataclass(frozen=True, kw_only=True)
class BuildResult:
    """What was built. `report.clean` says whether it is a dataset."""

    root: Path
    manifest: dict[str, Any]
    report: Report
    already_built: bool = False


def build(options: BuildOptions, progress: Progress | None = None) -> BuildResult:
    """Builds and validates a dataset. The same options and source give the same bytes, whatever the workers.

    Raises a SpanloomError before any work for what can be known then (tokenizer, source, options, disk, what stands at
    the root); later for rows, duplicates, conflicts and dead workers. Findings do not raise: they are in the report.
    """
    progress = progress or Progress(mode=Mode.SILENT)
    root = options.root
    _check_options(options)
    require_git_sha(allow_unknown=options.allow_unknown_sha)
    require_megatron()
    check_apart(options.source, root)
    asset = verify_tokenizer(options.tokenizer).path
    source = open_source(options.source, shards=options.shards)
    for shard in source.shards:
        if not shard.rows:
            progress.say(f"warning: {shard.where} has 0 rows; it will have no files")
    identity = {
        "config": dataset_config(shards=options.shards, caps=options.caps, valid_fraction=options.valid_fraction),
        "manifest_sha256": source.manifest_sha256,
        "renderer": options.renderer,
    }
    with held_root(root) as work:
        finished = (root / manifest.MANIFEST_NAME).exists()
        if finished and not options.overwrite:
            result = _validate_standing(options, identity, asset, root, progress)
        else:
            if options.check_disk:
                _check_disk(source, options, root)
            if finished:
                _set_aside(root, work)
                progress.say(f"the dataset that stood there is kept at {_aside(root)} until the new one is validated")
            _claim(root, work, identity, options)
            try:
                with _validator() as validator:
                    result = _run_steps(options, source, asset, root, work, validator, progress)
            except BaseException:
                clear_temporaries(root)  # workers that were ended could not clear up after themselves
                raise
        if result.report.clean:
            if not options.keep_work:
                remove_work(root)
            if options.overwrite and _aside(root).exists():
                _remove_aside(_aside(root), progress)
            _warn_of_empty_splits(result, options, progress)
    return result


def _validate_standing(
    options: BuildOptions, identity: dict[str, Any], asset: Path, root: Path, progress: Progress
) -> BuildResult:
    """A finished dataset stands there: it is the one that is asked for, or a conflict."""
    standing = manifest.read(root)
    difference = (
        _differs(root, standing["content"], identity, options) if options.resume else "--no-resume asks to build anew"
    )
    if difference is not None:
        raise ConflictError(
            f"the output root already holds another dataset: {difference}",
            where=str(root),
            remedy="give another --out, or replace it with --overwrite",
        )
    progress.say(f"{root} holds this very dataset already; validating it")
    clear_temporaries(root)
    with _validator() as validator:
        report = _validate(options, asset, root, standing, validator, progress)
    return BuildResult(root=root, manifest=standing, report=report, already_built=True)


def _run_steps(
    options: BuildOptions,
    source: Source,
    asset: Path,
    root: Path,
    work: Path,
    validator: "_Validator",
    progress: Progress,
) -> BuildResult:
    shards = range(options.shards)
    counters = Counters(options.shards)
    shares = [options.caps.share(shard, options.shards).rows for shard in shards]
    rows = [
        shard.rows if share is None else min(shard.rows, share)
        for shard, share in zip(source.shards, shares, strict=True)
    ]
    rendered, ids = ([work / f"{name}_{shard:02d}" for shard in shards] for name in ("rendered", "ids"))
    inventories = [work / f"inventory_{shard:02d}.json" for shard in shards]

    ahead = loading_ahead(options.renderer, asset)
    with process_pool(options.workers or _useful_workers(sum(rows)), counters, ahead=ahead) as pool:
        with progress.stage("render"), progress.rendering(counters, rows):

            def render(shard: int) -> dict[str, Any]:
                return render_shard(
                    source=options.source,
                    shard=shard,
                    rendered=rendered[shard],
                    ids=ids[shard],
                    pool=pool,
                    tokenizer=asset,
                    shards=options.shards,
                    renderer=options.renderer,
                    audit_fraction=options.audit_fraction,
                    caps=options.caps,
                    max_rejects=options.max_rejects,
                    resume=options.resume,
                )

            summaries = _for_each_shard(render, options.shards, pool)
        with progress.stage("split"):
            split = assemble_split(
                ids=ids,
                split=work / "split",
                valid_fraction=options.valid_fraction,
                on_duplicate=options.on_duplicate,
            )
        if split["repeated_rows"]:
            progress.say(
                f"warning: {split['repeated_rows']:,} rows repeat an id that an earlier row has; all were kept"
            )
        with progress.stage("write"), progress.writing(counters, [summary["rows"] for summary in summaries]):
            futures = [
                pool.submit(
                    write_indexed,
                    rendered=rendered[shard],
                    ids=ids[shard],
                    split=work / "split",
                    root=root,
                    inventory=inventories[shard],
                    resume=options.resume,
                )
                for shard in shards
            ]
            for shard, future in enumerate(futures):
                pool.result(future, f"writing shard {shard:02d}")
        pool.abort()  # they have nothing left to do, and take a quarter of a second to end by themselves

    (root / manifest.PENDING_NAME).unlink(missing_ok=True)  # of a build that stopped: it says when, and is made anew
    written = assemble_manifest(
        inventories=inventories,
        root=root,
        allow_unknown_sha=options.allow_unknown_sha,
        environment={
            "source": options.source_as_given or str(options.source),
            "tokenizer": str(asset),
            "workers": options.workers or _useful_workers(sum(rows)),
            "timings": dict(progress.timings),
        },
    )
    report = _validate(options, asset, root, written, validator, progress)
    return BuildResult(root=root, manifest=written, report=report)


def _useful_workers(rows: int) -> int:
    """One for each core, but none that would still be loading its libraries when the others have done the work."""
    return max(1, min(os.cpu_count() or 1, rows // ROWS_PER_WORKER))


@dataclass(frozen=True)
class _Validator:
    """The process that validates, and how far it is."""

    pool: Pool
    counters: Counters


@contextmanager
def _validator() -> Iterator[_Validator]:
    """A process for validation alone. It loads torch and Megatron, which takes seconds, while others still render, and
    keeps their memory out of this one, which loads matplotlib meanwhile."""
    counters = Counters(1)
    with process_pool(1, counters) as pool:
        pool.submit(load_reader)
        threading.Thread(target=load_plotting, daemon=True).start()
        yield _Validator(pool, counters)
        pool.abort()  # it has nothing left to do, and torch takes a second to end by itself


def _validate(
    options: BuildOptions, asset: Path, root: Path, written: dict[str, Any], validator: _Validator, progress: Progress
) -> Report:
    documents = sum(split["sequences"] for split in written["content"]["totals"]["splits"].values())
    with progress.stage("validate"), progress.checking(validator.counters, documents):
        future = validator.pool.submit(
            _validate_here,
            root,
            source=options.source,
            deep=options.deep,
            tokenizer=asset,
            workers=options.workers,
        )
        report, seconds = validator.pool.result(future, "validation")
        conclude(root, report, seconds=seconds, report_file=root / REPORT_JSON, html_file=root / REPORT_HTML)
    return report


def _validate_here(root: Path, **arguments: Any) -> tuple[Report, float]:
    """`validate_dataset` in a worker, which counts what it has checked; and how long it took."""
    counters, checked = workers.counters_here, 0

    def count(done: int, _: int) -> None:
        nonlocal checked
        if counters:
            counters.add(0, checked=done - checked)
        checked = done

    began = monotonic()
    report = validate_dataset(root, **arguments, on_progress=count)
    return report, monotonic() - began


def _for_each_shard(work: Callable[[int], dict[str, Any]], shards: int, pool: Pool) -> list[dict[str, Any]]:
    """Runs `work` for all shards at once, in threads that only wait for the pool; the first failure ends all of it."""
    with ThreadPoolExecutor(shards) as threads:
        futures = [threads.submit(work, shard) for shard in range(shards)]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = [future for future in futures if future in done and future.exception() is not None]
        except BaseException:
            pool.abort()  # else leaving the block would wait for threads that wait for the workers
            raise
        if failed:
            pool.abort()
            failed[0].result()
    return [future.result() for future in futures]


def _check_options(options: BuildOptions) -> None:
    """What can be refused before anything is read."""
    if options.workers is not None and options.workers < 1:
        raise SpanloomError(f"--workers must be at least 1, not {options.workers}")
    if options.shards < 1:
        raise SpanloomError(f"--shards must be at least 1, not {options.shards}")
    try:
        valid_threshold(options.valid_fraction)
    except ValueError as fault:
        raise SpanloomError(str(fault), remedy="give --valid-fraction a number from 0 to 1") from None
    reject_limit(options.max_rejects, 0)
    if options.on_duplicate not in ON_DUPLICATE:
        raise SpanloomError(f"on_duplicate must be one of {', '.join(ON_DUPLICATE)}, not {options.on_duplicate!r}")
    check_renderer(options.renderer)
    check_fraction(options.audit_fraction)
    if options.caps.any and options.root.resolve() == DEFAULT_ROOT.resolve():
        raise ConflictError(
            "a capped run must not write the canonical dataset",
            where=str(options.root),
            remedy=f"leave --out away (it then is {DEFAULT_CAPPED_ROOT}), or give another",
        )


def _differs(root: Path, content: dict[str, Any], identity: dict[str, Any], options: BuildOptions) -> str | None:
    """Why the dataset at `root` is not the one that is asked for, or None when it is and its files stand."""
    if (
        content["config"] != identity["config"]
        or content["input"]["manifest_sha256"] != identity["manifest_sha256"]
        or content["renderer"]["name"] != identity["renderer"]
    ):
        return "it was built with other options or from another source"
    if content["git_sha"] != git_sha() or content["renderer"]["version"] != renderer_version(options.renderer):
        return f"it was built by other code ({content['git_sha']}, {content['renderer']['version']})"
    if content["split"]["repeated_rows"] and options.on_duplicate == "error":
        return "ids stand twice in it, which --on-duplicate error does not allow"
    for shard in content["shards"]:
        if sum(shard["rejected"].values()) > reject_limit(options.max_rejects, shard["rows_read"]):
            return "rows were rejected for it, more than --max-rejects allows"
    damage = first_damage(root, content)
    return None if damage is None else f"it is this one, but damaged: {damage}"


def _aside(root: Path) -> Path:
    return root.with_name(root.name + ".replaced")


def _set_aside(root: Path, work: Path) -> None:
    """Moves a finished dataset out of the way, so that a failing build does not cost it. The locked folder stays."""
    manifest.read(root)  # a manifest.json of something else is not ours to move
    aside = _aside(root)
    if aside.exists():
        raise ConflictError(
            "a dataset that an earlier --overwrite set aside is still there",
            where=str(aside),
            remedy=f"move it back to {root.name}, or remove it",
        )
    aside.mkdir()
    # The manifest first: from here on the root is no dataset, and what was moved is not one yet either.
    names = [manifest.MANIFEST_NAME, *(path.name for path in root.iterdir() if path.name != manifest.MANIFEST_NAME)]
    for name in names:
        if root / name != work:
            (root / name).rename(aside / name)


def _remove_aside(aside: Path, progress: Progress) -> None:
    """Removes the replaced dataset, file by listed file; what somebody else put beside it stays."""
    for file in listed_files(manifest.read(aside)["content"]):
        (aside / file["path"]).unlink(missing_ok=True)
    (aside / manifest.MANIFEST_NAME).unlink(missing_ok=True)
    remove_views(aside)
    for folder in ("train", "valid", "rejects", "."):
        with suppress(OSError):
            (aside / folder).rmdir()
    if aside.exists():
        progress.say(f"files that were not part of the replaced dataset are kept at {aside}")


def _warn_of_empty_splits(result: BuildResult, options: BuildOptions, progress: Progress) -> None:
    splits = result.manifest["content"]["totals"]["splits"]
    if not splits["train"]["sequences"] and not splits["valid"]["sequences"]:
        progress.say("warning: the dataset holds no documents at all")
    elif not splits["valid"]["sequences"] and options.valid_fraction > 0:
        progress.say(f"warning: no id fell into valid at --valid-fraction {options.valid_fraction}")


def _claim(root: Path, work: Path, identity: dict[str, Any], options: BuildOptions) -> None:
    """Makes the held folder that of this very build and no other."""
    said = work / "build.json"
    if not options.resume:
        _discard(root, work)
    elif said.is_file() and json.loads(said.read_bytes()) != identity:
        raise ConflictError(
            "the root holds an unfinished build with other options or another source",
            where=str(root),
            remedy="run that one again to finish it, discard it with --no-resume, or give another --out",
        )
    clear_temporaries(root)
    write_atomically(said, readable_json(identity))


def _discard(root: Path, work: Path) -> None:
    """Removes what an unfinished build left at `root`, and nothing else: the names are ours."""
    for leftover in work.iterdir():
        if leftover.is_dir():
            shutil.rmtree(leftover)
        elif leftover.name != LOCK_NAME:
            leftover.unlink()
    for folder in ("train", "valid", "rejects"):
        for file in (root / folder).glob("shard_*"):
            file.unlink()
    (root / manifest.PENDING_NAME).unlink(missing_ok=True)
    remove_views(root)


def _check_disk(source: Source, options: BuildOptions, root: Path) -> None:
    """Refuses when the estimate does not fit: better than a full disk hours into a build."""
    rows = sum(shard.rows for shard in source.shards)
    tokens = sum(text_bytes(shard) for shard in source.shards) / TEXT_BYTES_PER_TOKEN
    if options.caps.any:
        shares = [options.caps.share(shard.index, options.shards).rows for shard in source.shards]
        read = sum(
            shard.rows if share is None else min(shard.rows, share)
            for shard, share in zip(source.shards, shares, strict=True)
        )
        tokens *= read / rows if rows else 0
        rows = read
        tokens = min(tokens, options.caps.max_tokens or tokens)
    there = 0 if options.overwrite else sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
    needed = int(tokens * BYTES_PER_TOKEN + rows * BYTES_PER_ROW) - there
    free = free_bytes(root)
    if needed > free:
        raise StorageError(
            f"not enough disk: about {needed / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free",
            where=str(root),
            remedy="free some space, give another --out, cap the run (--max-rows), or pass --no-disk-check",
        )
