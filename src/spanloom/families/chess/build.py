"""Parquet files → prepared games: a validated folder of memory-mapped arrays.

In: `PrepareOptions`. Out: the folder `root`. It gets its `manifest.json` only if validation has no findings.

    prepare_shard   one Parquet file → its arrays, split by split, and its inventory (a dictionary for the manifest)
    assemble        the inventories of all files → manifest.pending.json
    validate        (in `verify`) the folder → findings; if there are none, the manifest is promoted

On a cluster, each function is a separate step. `prepare` runs all of them on one machine. Each process holds one file
in memory at a time, so memory depends on the largest file, not on the number of files. After an interruption, run it
again: finished files are kept.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from spanloom.building.make import Making, made_and_validated
from spanloom.building.options import RunOptions
from spanloom.building.ordered import in_order, pool_of
from spanloom.conversations.source.rejects import reject_limit, too_many_rejects
from spanloom.dataset.manifest import PENDING_NAME, files_of, promote, write_pending
from spanloom.dataset.root.lock import NEW_NAME, WORK_NAME, BuildRecord, check_apart
from spanloom.errors import ArtifactError, SourceError
from spanloom.families.chess import manifest
from spanloom.families.chess.encoding.python_chess import require_python_chess
from spanloom.families.chess.errors import ChessError, NoFilesError
from spanloom.families.chess.options import PrepareRules
from spanloom.families.chess.reading.prepared import (
    ARRAYS,
    KINDS,
    array_path,
    prepared_bytes,
    rejects_path,
    write_table,
)
from spanloom.families.chess.reading.source import parquet_files, raise_beyond, raise_first, read_table, reasons
from spanloom.families.chess.reading.tables import WITHOUT, GameTable, Kind, ThinkingTable, select
from spanloom.families.chess.verify.games import Checks, validate_root
from spanloom.findings import Report
from spanloom.machine import usable_cpus
from spanloom.provenance import canonical_json, environment_here, git_sha, part_key, readable_json, sha256_json
from spanloom.records.files import passed_over
from spanloom.report.progress import Mode, Progress
from spanloom.split import SPLITS, id_digests, is_valid, valid_threshold
from spanloom.storage import publish_bytes, read_json, sha256_file, write_atomically
from spanloom.storage.unchanged import FileState, check_unchanged, file_state

LIBRARIES = ("numpy", "pyarrow", "chess")
"""The libraries that make the arrays and judge moves."""

INVENTORY_SCHEMA = "spanloom_chess_inventory_v1"
SHARD_SCHEMA = "spanloom_chess_shard_v1"
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class PrepareOptions(PrepareRules, Checks, RunOptions):
    """The options of `prepare`: a folder of games, one of thinking rows, or both → `root`, and its validation.

    `sources_as_given`  both places as the user gave them, for the manifest, if they were staged from URIs
    `workers`   processes that prepare files in parallel
    """

    root: Path
    sources_as_given: tuple[str | None, str | None] | None = None
    workers: int | None = 1


@dataclass(frozen=True, kw_only=True)
class PrepareResult:
    """The prepared root, its manifest and its validation. Use the root for training only if `report.clean`.

    `passed_over`: what the folders hold that was not read, by kind.
    """

    root: Path
    manifest: dict[str, Any]
    report: Report
    already_built: bool = False
    passed_over: dict[Kind, list[str]]


@dataclass(frozen=True, kw_only=True)
class HashedFile:
    """A file's sha256, and its state before it was hashed."""

    sha256: str
    state: FileState


def hashed_file(path: Path) -> HashedFile:
    """Hashes a file."""
    state = file_state(path)
    return HashedFile(sha256=sha256_file(path), state=state)


def prepare_shard(
    path: Path,
    kind: Kind,
    number: int,
    root: Path,
    rules: PrepareRules,
    hashed: HashedFile | None = None,
) -> dict[str, Any]:
    """Writes the arrays of one Parquet file. Returns its inventory: the entries for the manifest, with the file's hash.

    `hashed`: the file's hash and state at the start of the run. Raises SourceError, before writing anything, if the
    file cannot be read or has changed since then; ChessError for a bad game with `on_error` "raise", RejectedRowError
    for more than `max_rejects` allows of the file's rows.
    """
    hashed = hashed or hashed_file(path)
    try:
        table = read_table(path, kind)
    except SourceError:  # a file that is still being written also fails to parse: report the change instead
        check_unchanged(path, hashed.state, sha256=hashed.sha256)
        raise
    check_unchanged(path, hashed.state, sha256=hashed.sha256)
    if rules.on_error == "raise":
        raise_first(table.rejects, path)
    if rules.max_rejects is not None:
        raise_beyond(table.rejects, path, reject_limit(rules.max_rejects, table.rows))
    held_out = is_valid(id_digests(table.ids), rules.valid_fraction)
    splits = {}
    for split in SPLITS:
        chosen = held_out if split == "valid" else ~held_out
        if not chosen.any():
            continue
        part = select(table, chosen)
        splits[split] = {
            "items": len(part),
            "positions": len(part.boards) + len(getattr(part, "node_boards", ())),
            "files": write_table(root, split, kind, number, part),
        }
    return {
        "schema_version": SHARD_SCHEMA,
        "input": {
            "path": path.name,
            "rows": table.rows,
            "bytes": hashed.state.bytes,
            "sha256": hashed.sha256,
        },
        "shard": {
            "kind": kind,
            "shard": number,
            "source": path.name,
            "rows_read": table.rows,
            **{name: getattr(table, name, 0) for name in WITHOUT},
            "rejected": dict(sorted(reasons(table.rejects).items())),
            "rejects_file": _write_rejects(root, kind, number, table),
            "splits": splits,
        },
    }


def _write_rejects(root: Path, kind: Kind, number: int, table: GameTable | ThinkingTable) -> dict[str, Any] | None:
    if not table.rejects:
        return None
    path = rejects_path(root, kind, number)
    data = b"".join(canonical_json(vars(reject)) + b"\n" for reject in table.rejects)
    publish_bytes(data, path)
    return {"path": path.relative_to(root).as_posix(), "bytes": len(data), "sha256": sha256_file(path)}


def assemble(
    root: Path,
    inventories: Iterable[dict[str, Any]],
    *,
    valid_fraction: float,
    environment: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Writes and returns `manifest.pending.json`, from the inventories of all files in any order.

    Raises ChessError if an inventory is missing or duplicate, or if there are no inventories.
    """
    ordered = sorted(inventories, key=lambda each: (KINDS.index(each["shard"]["kind"]), each["shard"]["shard"]))
    for kind in KINDS:
        numbers = [each["shard"]["shard"] for each in ordered if each["shard"]["kind"] == kind]
        if numbers != list(range(len(numbers))):
            raise ChessError(
                f"the {kind} files are numbered {numbers}: some are missing, or there twice",
                where=str(root),
                remedy="prepare the missing files, and assemble again",
            )
    if not ordered:
        raise ChessError("there is nothing to assemble", where=str(root))
    shards = [each["shard"] for each in ordered]
    config = config_of(valid_fraction)
    made = {
        "schema_version": manifest.SCHEMA_VERSION,
        "content": {
            "family": manifest.FAMILY,
            "git_sha": git_sha(),
            "config": config,
            "config_sha256": sha256_json(config),
            "vocabulary": manifest.recorded_vocabulary(),
            "input": {kind: [each["input"] for each in ordered if each["shard"]["kind"] == kind] for kind in KINDS},
            "split": {
                "rule": manifest.SPLIT_RULE,
                "valid_fraction": valid_fraction,
                "threshold": str(valid_threshold(valid_fraction)),
            },
            "arrays": ARRAYS,
            "totals": {kind: totals_of([shard for shard in shards if shard["kind"] == kind]) for kind in KINDS},
            "shards": shards,
        },
        "environment": environment_here(environment),
    }
    write_pending(root, made, manifest.check)
    return made


def config_of(valid_fraction: float) -> dict[str, Any]:
    """The manifest's `config`: the options that determine the bytes, apart from input and code."""
    return {"valid_fraction": valid_fraction}


def totals_of(shards: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums over the shards of one kind."""
    rejected: Counter[str] = Counter()
    splits: dict[str, dict[str, int]] = {}
    for shard in shards:
        rejected.update(shard["rejected"])
        for split, counts in shard["splits"].items():
            sums = splits.setdefault(split, {"items": 0, "positions": 0})
            for name in sums:
                sums[name] += counts[name]
    return {
        **{name: sum(shard[name] for shard in shards) for name in ("rows_read", *WITHOUT)},
        "rejected": dict(sorted(rejected.items())),
        "splits": splits,
    }


def prepare(
    options: PrepareOptions, on_progress: OnProgress | None = None, progress: Progress | None = None
) -> PrepareResult:
    """Prepares and validates. The same options and files give the same bytes; `workers` does not change them.

    Raises a SpanloomError if it fails. Findings do not raise: they are in the report. `on_progress` is called with the
    number of finished files and of all files; `progress` shows messages.
    """
    if options.legal:
        require_python_chess()  # now, not after hours of preparing
    options.check()
    valid_threshold(options.valid_fraction)  # raises for an invalid fraction
    files: list[tuple[Kind, int, Path]] = []
    unread: dict[Kind, list[str]] = {}
    folders: tuple[tuple[Kind, Path | None], ...] = (("games", options.games), ("thinking", options.thinking))
    for kind, folder in folders:
        if folder is not None:
            check_apart(folder, options.root)
            paths = parquet_files(folder)
            files += [(kind, number, path) for number, path in enumerate(paths)]
            unread[kind] = passed_over(folder, set(paths))
    if not files:
        raise NoFilesError("neither a folder of games nor one of thinking rows was given")
    hashed = {path: hashed_file(path) for _, _, path in files}
    identity = {
        "family": manifest.FAMILY,
        "config": config_of(options.valid_fraction),
        "source": [[kind, path.name, hashed[path].sha256] for kind, _, path in files],
    }

    def validate(root: Path, _: dict[str, Any]) -> tuple[Report, float]:
        began = monotonic()
        return validate_root(root, options), monotonic() - began

    def conclude(root: Path, report: Report, _: float) -> None:
        if report.clean and (root / PENDING_NAME).exists():
            promote(root, manifest.check)

    work = options.root / WORK_NAME
    outcome = made_and_validated(
        options.root,
        _record_of(files, identity),
        options,
        progress or Progress(mode=Mode.SILENT),
        Making(
            make=lambda root: _prepare(options, files, hashed, root, work, on_progress),
            validate=validate,
            conclude=conclude,
            check=manifest.check,
            bytes_needed=lambda: sum(prepared_bytes(kind, path) for kind, _, path in files),
            identity_of=identity_of,
        ),
    )
    return PrepareResult(**vars(outcome), passed_over=unread)


def identity_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the bytes of prepared games, besides the code, from the `content` of their manifest."""
    return {
        "family": content["family"],
        "config": content["config"],
        "source": [[kind, file["path"], file["sha256"]] for kind in KINDS for file in content["input"][kind]],
    }


def _record_of(files: list[tuple[Kind, int, Path]], identity: dict[str, Any]) -> BuildRecord:
    """The record of the files that this run may write below its root."""
    names = [
        array_path(Path(), split, kind, number, name).as_posix()
        for kind, number, _ in files
        for split in SPLITS
        for name in (*ARRAYS[kind], "ids")
    ]
    rejects = [rejects_path(Path(), kind, number).as_posix() for kind, number, _ in files]
    inventories = [inventory_name(kind, number) for kind, number, _ in files]
    return BuildRecord(identity=identity, files=(PENDING_NAME, *names, *rejects), work=(*inventories, NEW_NAME))


def inventory_name(kind: Kind, number: int) -> str:
    """The name of a file's inventory in `.work`: `games_00003.json`"""
    return f"{kind}_{number:05d}.json"


@dataclass(frozen=True, kw_only=True)
class _FileJob:
    """A file to be prepared. `target`: where its inventory is kept."""

    target: Path
    path: Path
    kind: Kind
    number: int
    hashed: HashedFile


def _prepare_file(options: PrepareOptions, root: Path, job: _FileJob) -> dict[str, Any]:
    return prepare_shard(job.path, job.kind, job.number, root, options, job.hashed)


def _prepare(
    options: PrepareOptions,
    files: list[tuple[Kind, int, Path]],
    hashed: dict[Path, HashedFile],
    root: Path,
    work: Path,
    on_progress: OnProgress | None,
) -> dict[str, Any]:
    inventories: dict[Path, dict[str, Any]] = {}
    todo = []
    for kind, number, path in files:
        target = work / inventory_name(kind, number)
        inventory = _finished(root, target, key_of(options, kind, number, hashed[path]))
        if inventory is not None and not too_many_rejects(inventory["shard"], options.max_rejects):
            inventories[target] = inventory
        else:
            todo.append(_FileJob(target=target, path=path, kind=kind, number=number, hashed=hashed[path]))

    def keep(job: _FileJob, inventory: dict[str, Any]) -> None:
        key = key_of(options, job.kind, job.number, job.hashed)
        write_atomically(job.target, readable_json({"key": key, "inventory": inventory}))
        inventories[job.target] = inventory
        if on_progress is not None:
            on_progress(len(inventories), len(files))

    with pool_of(min(options.workers or usable_cpus(), len(todo))) as pool:
        for job, inventory in in_order(
            todo, partial(_prepare_file, options, root), pool, what=lambda job: job.path.name
        ):
            keep(job, inventory)
    sources = options.sources_as_given or [place and str(place) for place in (options.games, options.thinking)]
    return assemble(
        root,
        inventories.values(),
        valid_fraction=options.valid_fraction,
        environment={**dict(zip(KINDS, sources, strict=True)), "workers": options.workers},
    )


def key_of(options: PrepareOptions, kind: Kind, number: int, hashed: HashedFile) -> str:
    """The hash of all that decides the arrays of a file."""
    config = config_of(options.valid_fraction)
    return part_key(manifest.FAMILY, *LIBRARIES, config=config, file=[kind, number, hashed.sha256])


def _finished(root: Path, target: Path, key: str) -> dict[str, Any] | None:
    """The inventory of a file that an earlier run finished, or None if its arrays are missing or incomplete."""
    remedy = "remove it: the file is prepared again"
    try:
        kept: dict[str, Any] = read_json(target, ArtifactError, "the inventory of an earlier run", remedy)
    except FileNotFoundError:
        return None
    if kept.get("key") != key:
        return None
    inventory: dict[str, Any] = kept["inventory"]
    for file in files_of({"shards": [inventory["shard"]]}):
        path = root / file.path
        if not path.is_file() or path.stat().st_size != file.bytes:
            return None
    return inventory
