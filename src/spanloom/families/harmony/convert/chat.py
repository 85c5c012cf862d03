"""Chat data of any form → a folder of conversations: one whole conversation per row, rejects, a manifest.

In: files of records (see `records/record_files.py`) in one of the forms of `conversations.forms`. Out:

    conversations_shard_00.parquet   at most `rows_per_shard` conversations, in the order of the records
    rejects/shard_00.jsonl           rejected records read for that shard, each with its reason; only if there are any
    manifest.json                    written last

Records are streamed: memory holds one record and one row group. A run that ends early, killed or not, is resumed after
its last whole shard. There is no clock and no randomness, so the same input and options give the same bytes (under one
version of pyarrow), resumed or not.
"""

import gc
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from spanloom.conversations.ids import SeenIds
from spanloom.conversations.outcomes import Counts, LeftAway, Read, Rejected
from spanloom.conversations.source.folder import MANIFEST_NAME
from spanloom.conversations.source.format import CONVERSATIONS, SourceFormat
from spanloom.conversations.source.manifest import CONVERSATIONS_COLUMNS, ConversationsManifest
from spanloom.conversations.source.rejects import reject_limit
from spanloom.conversations.source.writer import OutputRow, ShardWriter
from spanloom.dataset.root.layout import rejects_file
from spanloom.dataset.root.lock import check_apart
from spanloom.errors import ArtifactError, SourceError
from spanloom.families.harmony.convert.chat_input import ChatInput, reads_of, remedy_of
from spanloom.families.harmony.convert.conversion import ChatConversion, Converted, Converter
from spanloom.families.harmony.convert.in_order import InOrder
from spanloom.provenance import part_identity, readable_json
from spanloom.records.parquet import open_parquet, parquet_batches
from spanloom.records.record_files import SUFFIXES
from spanloom.records.staging import staged_records
from spanloom.storage import sha256_file, write_atomically, written_atomically
from spanloom.storage.folders.filling import Steps, filling_in_steps
from spanloom.storage.folders.repeated import MADE_JSON, OnSame, Output, check_overwritable, made_or_same, write_record
from spanloom.storage.hub import pinned
from spanloom.storage.scratch import Scratch
from spanloom.storage.unchanged import check_unchanged
from spanloom.storage.uri import is_hub, is_uri
from spanloom.workers import OnProgress, Pool, process_pool

LIBRARIES = ("orjson", "pyarrow", "openai-harmony")
"""The libraries that read records and write shards."""

RECORD_NAME = ".spanloom-convert-unfinished"
"""A file in a folder whose conversion is unfinished."""

COLLECT_AFTER = 50_000
"""Allocations between two runs of the garbage collector, while records are converted."""


def conversations(chat: ChatInput, conversion: ChatConversion) -> Iterator[Converted | Rejected | LeftAway]:
    """The result of converting each record, in order."""
    converter = Converter(chat.form, conversion)
    return (converter.convert(read) for read in reads_of(chat.files, conversion.keys))


@dataclass(frozen=True, kw_only=True)
class Examples:
    """The first rejected record, and the first conversation that Harmony cannot represent, for each reason."""

    refused: dict[str, Rejected]
    unheld: dict[str, Converted]


def count_chat(
    chat: ChatInput, conversion: ChatConversion, on_progress: OnProgress | None = None
) -> tuple[Counts, Examples]:
    """Converts all records and writes nothing. Returns the counts and examples."""
    converter = Converter(chat.form, conversion)
    examples: dict[str, Rejected] = {}
    for read in reads_of(chat.files, conversion.keys, on_progress):
        outcome = converter.convert(read)
        if isinstance(outcome, Rejected):
            examples.setdefault(outcome.reason, outcome)
    return converter.counts, Examples(refused=examples, unheld=converter.unheld)


def convert_chat(
    *,
    chat: ChatInput,
    out: Path,
    conversion: ChatConversion,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    workers: int = 1,
    on_same: OnSame | None = None,
    places: Sequence[str] = (),
) -> dict[str, Any]:
    """Converts all records into the folder `out`, or resumes the unfinished folder of an earlier run.

    `places`: inputs that are recorded, with their commit. `workers`: processes that convert; their number does not
    change the result. `overwrite`: replaces another conversion in `out`, once the new one is complete.
    Returns the manifest that was written there. Raises RejectedRowError if more records are rejected than allowed,
    SourceError for a file that cannot be read or has changed, ConflictError if `out` has other content.
    """
    for place in chat.places:
        if place.is_dir():  # the next run would read the output of this one
            check_apart(place, out)
    identity = part_identity(
        "harmony",
        *LIBRARIES,
        conversion=conversion.deciding(),
        input=[[file.name, file.kind, *file.state.written] for file in chat.files],
    )
    output = Output(identity=_made_of(chat, conversion), last=MANIFEST_NAME, record_name=RECORD_NAME)

    def make(folder: Path) -> None:
        with filling_in_steps(folder, record_name=RECORD_NAME, identity=identity, last=MANIFEST_NAME) as steps:
            if not steps.finished:
                with _unwatched(), process_pool(workers) if workers > 1 else nullcontext() as pool:
                    counts = _write_shards(chat, folder, conversion, steps, on_progress, pool)
                for file in chat.files:
                    check_unchanged(file.path, file.state)
                manifest = _manifest(chat, conversion, counts, steps.ended, places)
                steps.begin([MADE_JSON])
                write_record(folder, output)
                steps.end({"counts": counts.as_dict()})
                write_atomically(folder / MANIFEST_NAME, readable_json(manifest))

    made_or_same(out, output, make, overwrite=overwrite, on_same=on_same)
    return dict(json.loads((out / MANIFEST_NAME).read_bytes()))


def _made_of(chat: ChatInput, conversion: ChatConversion) -> dict[str, Any]:
    """What a source is made of. Unlike the identity of an unfinished run it has no times: a copy is the same input."""
    return {
        "input": [[file.name, file.kind, sha256_file(file.path)] for file in chat.files],
        "options": {**conversion.deciding(), "dataset": conversion.dataset, "license": conversion.license},
        "code": part_identity("harmony", *LIBRARIES),
    }


@contextmanager
def _unwatched() -> Iterator[None]:
    """The garbage collector ignores all existing objects and runs less often. Records allocate thousands of objects
    without cycles, and each collection would scan all objects of the libraries."""
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _write_shards(
    chat: ChatInput,
    out: Path,
    conversion: ChatConversion,
    steps: Steps,
    on_progress: OnProgress | None,
    pool: Pool | None,
) -> Counts:
    before = steps.ended[-1] if steps.ended else None
    counts, ids = Counts.of(before["counts"]) if before else Counts(), SeenIds()
    for shard_end in steps.ended:
        if "shard" in shard_end:
            _check_standing(out, shard_end["shard"])
            if not conversion.leaves_out_duplicates:
                for identity in _ids(out / shard_end["shard"]["path"]):
                    ids.add(identity)
    again = counts.read
    if conversion.leaves_out_duplicates:
        counts = Counts()
    reads = islice(reads_of(chat.files, conversion.keys, on_progress, as_lines=pool is not None), counts.read, None)
    in_order = InOrder(chat.form, conversion, reads, counts, ids)
    outcomes = in_order.outcomes(pool)
    if conversion.leaves_out_duplicates:
        # Contents, and ids of records that were left out, are in no shard: the records before are converted again.
        for _ in islice(outcomes, again):
            pass
    first: Rejected | None = None
    limit = conversion.max_rejects
    for outcome in outcomes:
        with ExitStack() as undo:
            shard = _Shard(out, conversion.source_format, len(steps.ended), steps, undo)
            for result in chain([outcome], outcomes):
                if isinstance(result, Rejected):
                    shard.reject(result)
                    first = first or (result if result.counts else None)
                    if result.counts and not limit.endswith("%") and in_order.refused > reject_limit(limit, 0):
                        raise result.as_error(allowed=limit, remedy=remedy_of(result, chat))
                elif result is not None:
                    shard.append(result)
                if shard.rows == conversion.rows_per_shard:
                    break
            shard_end = shard.finish()
            undo.pop_all()  # it is complete: keep it
        steps.end({**shard_end, "counts": in_order.counts.as_dict()})
    counts = in_order.counts
    # For a share, the allowed number of records is known only at the end.
    if limit.endswith("%") and counts.refused.total() > reject_limit(limit, counts.read):
        allowed = f"{limit} of {counts.read:,} records: {counts_text(counts.refused)}"
        first = first or _first_listed(out, steps)
        raise first.as_error(allowed=allowed, remedy=remedy_of(first, chat))
    if not counts.written:
        raise SourceError(
            f"no record makes a conversation: {counts_text(counts.skipped)}",
            where=chat.first.where,
            remedy="--dry-run shows the first record of each reason",
        )
    return counts


def _first_listed(out: Path, steps: Steps) -> Rejected:
    """The first refused record that an earlier run of the same conversion has listed."""
    for entry in steps.ended:
        for line in (out / entry["rejects"]["path"]).read_bytes().splitlines() if "rejects" in entry else ():
            listed = json.loads(line)
            read = Read(
                file=listed["file"], number=listed["number"], where=f"{listed['file']}, record {listed['number']}"
            )
            rejected = Rejected(read=read, reason=listed["reason"], detail=listed["detail"], remedy=None)
            if rejected.counts:
                return rejected
    raise ArtifactError("its rejects are missing", where=str(out), remedy=f"remove {out} and convert again")


def counts_text(counts: Mapping[str, int]) -> str:
    """`3 no_assistant, 1 think_tags`, or `none`."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "none"


def _check_standing(out: Path, shard: dict[str, Any]) -> None:
    path = out / shard["path"]
    if not path.is_file() or path.stat().st_size != shard["bytes"]:
        raise ArtifactError(
            "a shard that an earlier run has written is damaged",
            where=str(path),
            remedy=f"remove {out} and convert again",
        )


def _ids(path: Path) -> Iterator[str]:
    with open_parquet(path) as file:
        for _, batch in parquet_batches(file, path, ["id"]):
            yield from batch.column("id").to_pylist()


class _Shard:
    """One shard and the rejects of the records read for it. Registers the removal of its files with `undo`."""

    def __init__(self, out: Path, format_: SourceFormat, index: int, steps: Steps, undo: ExitStack) -> None:
        self._path, self._rejects_path = out / format_.shard_name(index), rejects_file(out, index)
        self._rejects_name = self._rejects_path.relative_to(out).as_posix()
        steps.begin([self._path.name, self._rejects_name])
        self._undo = undo
        self._writer: ShardWriter | None = None
        self._rejects: BinaryIO | None = None
        self._files = ExitStack()
        undo.push(self._files)
        self.rejected = 0

    @property
    def rows(self) -> int:
        return self._writer.rows if self._writer is not None else 0

    def append(self, row: OutputRow) -> None:
        if self._writer is None:
            self._writer = ShardWriter(self._path, CONVERSATIONS_COLUMNS, self._undo)
        self._writer.append(row)

    def reject(self, rejected: Rejected) -> None:
        if self._rejects is None:
            self._rejects = self._files.enter_context(written_atomically(self._rejects_path))
        self._rejects.write(rejected.as_json_line())
        self.rejected += 1

    def finish(self) -> dict[str, Any]:
        """Gives both files their final names. Returns their entry in the manifest."""
        self._files.close()
        entry: dict[str, Any] = {} if self._writer is None else {"shard": self._writer.finish()}
        if self._rejects is not None:
            size = self._rejects_path.stat().st_size
            entry["rejects"] = {"path": self._rejects_name, "records": self.rejected, "bytes": size}
        return entry


def _manifest(
    chat: ChatInput,
    conversion: ChatConversion,
    counts: Counts,
    ended: list[dict[str, Any]],
    places: Sequence[str],
) -> dict[str, Any]:
    fields = conversion.system_fields
    counted = {name: dict(sorted(count.items())) for name, count in vars(counts).items() if isinstance(count, Counter)}
    whole = {
        "schema_version": conversion.source_format.schema_version,
        "conversion": {
            "form": chat.form.name,
            "options": conversion.deciding(),
            "model_identity": fields.model_identity,
            "conversation_start_date": fields.start_date,
            "knowledge_cutoff": fields.knowledge_cutoff,
            "reasoning_effort": fields.reasoning_effort,
            "developer": fields.developer,
            "rows_read": counts.read,
            "rows_written": counts.written,
            "sources": [
                {"path": file.name, "rows": counts.files[file.name], "bytes": file.state.bytes} for file in chat.files
            ],
            "dataset": conversion.dataset,
            "license": conversion.license,
            **({"places": list(places)} if places else {}),
            **{name: counted[name] for name in ("skipped", "dropped", "dropped_characters", "metadata", "messages")},
            "ids_made": counts.ids_made,
            **({"refused_keys": counted["refused_keys"]} if counts.refused_keys else {}),
            **({"read_as": counted["read_as"]} if counts.read_as else {}),
            **({"models": {"refused": counted["refused_by_models"]}} if counts.refused_by_models else {}),
            "harmony": {"refused": counted["refused_by_harmony"], "not_rendered": counted["not_rendered"]},
            "rejects": [entry["rejects"] for entry in ended if "rejects" in entry],
            "spanloom": version("spanloom"),
        },
        "storage": CONVERSATIONS.storage([entry["shard"] for entry in ended if "shard" in entry]),
    }
    return ConversationsManifest.model_validate(whole).as_dict()


def local_inputs(staging: Scratch, places: Sequence[str]) -> list[Path]:
    """Local paths of the places; objects in object stores are staged."""
    return [staged_records(staging, place, SUFFIXES) for place in places]


def run(
    *,
    staging: Scratch,
    chat: ChatInput,
    out: str,
    conversion: ChatConversion,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    workers: int = 1,
    on_same: OnSame | None = None,
) -> dict[str, Any]:
    """The conversion into a folder or a URI. Returns the manifest."""
    check_overwritable(out, overwrite)
    local_out = staging.path(out)
    if is_uri(out) and (local_out / MANIFEST_NAME).is_file() and not (local_out / RECORD_NAME).exists():
        shutil.rmtree(local_out)  # left by a run that was killed while it published
    manifest = convert_chat(
        chat=chat,
        out=local_out,
        conversion=conversion,
        overwrite=overwrite,
        on_progress=on_progress,
        workers=workers,
        on_same=on_same,
        places=[pinned(place) for place in staging.stands_for.values() if is_hub(place)],
    )
    staging.publish_folder(out, last=MANIFEST_NAME)
    return manifest
