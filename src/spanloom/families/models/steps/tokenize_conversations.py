"""Step tokenize-conversations: conversations and a model's folder → a token dataset, not validated yet.

In: a source folder, a model's folder, `ModelRules`. Out: the files under the dataset root, including the model's files,
`probe.json` and `manifest.pending.json`. A conversation with a run that is neither proven nor declared is refused,
counted by class and listed in `rejects/`. The id of a conversation decides the split of all its documents.

The size of a batch of rows does not depend on the workers. Finished batches are kept in the folder of intermediates, so
that a stopped build can be resumed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from spanloom.building.ordered import in_order, pool_of
from spanloom.conversations.source.caps import RowCaps, check_capped_root
from spanloom.conversations.source.folder import (
    Source,
    SourceShard,
    check_still_hashed,
    named_origin,
    open_source,
    open_source_shard,
    plan_parts,
    read_rows,
    verify_hash,
)
from spanloom.conversations.source.rejects import reject_limit
from spanloom.dataset.manifest import Input, InputShard, ListedFile, Manifest, RendererEntry, ShardEntry
from spanloom.dataset.root.inventory import add_up
from spanloom.dataset.root.layout import MODEL_FOLDER, rejects_file
from spanloom.dataset.root.made import published, write_pending
from spanloom.dataset.root.places import made_at
from spanloom.dataset.split_writer import SplitWriter, by_split, split_writers
from spanloom.errors import DuplicateIdError, RejectedRowError
from spanloom.families.models import defaults
from spanloom.families.models.documents.made import ABOUT_SCHEMA
from spanloom.families.models.documents.parts import PartTask, finished_part, keep_loaded, read_part
from spanloom.families.models.documents.rules import (
    MODEL_FILES,
    PROBE_NAME,
    Ingredients,
    ModelRules,
    load_ingredients,
)
from spanloom.families.models.errors import ModelError
from spanloom.families.models.places import held_model, staged_model
from spanloom.families.models.probe.conversations import probed_conversations
from spanloom.families.models.probe.result import as_json, probe
from spanloom.families.models.source.formats import FORMATS, staged_source
from spanloom.kubeflow import dataset_artifacts
from spanloom.machine import workers_that_fit
from spanloom.provenance import (
    canonical_json,
    library_versions,
    part_key,
    readable_json,
    require_git_sha,
)
from spanloom.report.progress import Progress
from spanloom.split import SPLITS, id_digests
from spanloom.storage.scratch import scratch_for
from spanloom.workers import OnProgress, Pool

FAMILY = "model_chat"
ARRAY_DTYPES = {"tokens": "int32", "lossmask": "uint8", "span": "uint8"}
SPAN_NAMES = defaults.SPAN_NAMES
PARTS_NAME = "parts"
LIBRARIES = ("tokenizers", "fastokens", "Jinja2", "numpy", "pyarrow")
"""The libraries that make the tokens and the files of parts."""

WORKER_BYTES = 700 << 20
"""The memory of one process with a tokenizer of 150,000 tokens, its fast encoder and a batch of conversations."""

ROWS_WORTH_LOADING = 2000
"""About as many conversations as one process proves while another one loads the model."""

_AT_ONCE = 256
"""The number of documents that are written together."""


@dataclass(frozen=True, kw_only=True)
class TokenizeOptions:
    """Options that do not change the content of a finished dataset, and `caps`.

    `caps`: how many rows are read; `workers` None: `useful_workers`; `work`: the folder of intermediates.
    """

    work: Path
    caps: RowCaps = field(default_factory=RowCaps)
    max_rejects: str = defaults.MAX_REJECTS
    on_duplicate: str = defaults.ON_DUPLICATE
    workers: int | None = None
    resume: bool = True
    allow_unknown_sha: bool = False
    environment: dict[str, Any] = field(default_factory=dict)


def config_of(ingredients: Ingredients, caps: RowCaps) -> dict[str, Any]:
    """The manifest's `config`: together with the source, it decides the bytes."""
    return {**ingredients.config(), "caps": caps.as_dict()}


def useful_workers(rows: int) -> int:
    """The number of processes that CPUs and memory allow, with at least `ROWS_WORTH_LOADING` rows for each."""
    return max(1, min(workers_that_fit(WORKER_BYTES), rows // ROWS_WORTH_LOADING))


def tokenize_conversations(
    *,
    source: Source,
    ingredients: Ingredients,
    root: Path,
    options: TokenizeOptions,
    on_progress: OnProgress | None = None,
) -> Manifest:
    """Writes the token dataset at `root` and returns its pending manifest.

    Files are never overwritten; an existing file with the same bytes counts as written. `on_progress` counts rows of
    the source. Raises RejectedRowError if more conversations are refused than `max_rejects` allows, DuplicateIdError
    for a repeated id if `on_duplicate` is `error`, ModelError if no document is made, SourceError, ConflictError.
    """
    made_by = require_git_sha(allow_unknown=options.allow_unknown_sha)
    config = config_of(ingredients, options.caps)
    counts = options.caps.rows_read([shard.rows for shard in source.shards])
    if on_progress is not None:
        on_progress(0, sum(counts))
    files = _publish_files(root, ingredients)  # the probe too, before any conversation is proven
    key = part_key("models", *LIBRARIES, config=config, source=source.manifest_sha256, git_sha=made_by)
    build = _Build(
        ingredients=ingredients,
        root=root,
        options=options,
        rows=sum(counts),
        on_progress=on_progress,
        key=key,
    )
    options.work.mkdir(parents=True, exist_ok=True)
    keep_loaded(key, ingredients)
    workers = options.workers or useful_workers(sum(counts))
    with pool_of(workers) as pool:
        entries = [
            build.shard(verify_hash(shard), read, pool) for shard, read in zip(source.shards, counts, strict=True)
        ]
    totals = add_up(entries)
    if not totals.sequences:
        refused = ", ".join(f"{number:,} {reason}" for reason, number in sorted(totals.rejected.items())) or "none"
        raise ModelError(
            f"no document is made of these conversations (refused: {refused})",
            where=str(source.directory),
            remedy="`spanloom model probe` says what the template does; see --train too",
        )
    tokenizer, encoder = ingredients.model.tokenizer, ingredients.model.encoder
    name = "fastokens" if encoder.fast else "tokenizers"
    return write_pending(
        root,
        *entries,
        family=FAMILY,
        git_sha=made_by,
        config=config,
        tokenizer=tokenizer,
        input=_input(source),
        id_column="conversation",
        repeated_rows=build.repeated,
        renderer=RendererEntry(
            name=name,
            version=library_versions(name)[name] or "unknown",
            fallback_rows=0,
            audited_rows=build.audited,
        ),
        arrays=ARRAY_DTYPES,
        span_names=SPAN_NAMES,
        files=files,
        environment={"libraries": library_versions(*LIBRARIES), **options.environment},
    )


@dataclass(kw_only=True)
class _Build:
    """One build: shard by shard, the parts of each in order, whatever worker makes them. `rows`: how many are read."""

    ingredients: Ingredients
    root: Path
    options: TokenizeOptions
    rows: int
    on_progress: OnProgress | None
    key: str
    repeated: int = 0
    audited: int = 0
    _done: int = 0
    _seen: set[int] = field(default_factory=set)

    def shard(self, shard: SourceShard, read: int, pool: Pool | None) -> ShardEntry:
        """Writes the files of one shard from its first `read` rows. Returns its entry in the manifest."""
        cutting: Counter[str] = Counter()
        refused: list[dict[str, Any]] = []
        allowed = reject_limit(self.options.max_rejects, read)
        rules, eod = self.ingredients.rules, int(self.ingredients.config()["eod"]["id"])
        with split_writers(
            self.root, shard.index, arrays=ARRAY_DTYPES, span_names=SPAN_NAMES, about=ABOUT_SCHEMA
        ) as writers:
            for task, counted in self._parts(shard, read, pool):
                cutting.update(counted["cutting"])
                refused += counted["refused"]
                if len(refused) > allowed:
                    raise _too_many(shard, refused[allowed], allowed)
                self.audited += counted["audited"]
                self._take_ids(counted["ids"], shard)
                table = read_part(task)
                for batch in table.to_batches(max_chunksize=_AT_ONCE):
                    digests = id_digests(batch.column("conversation").to_pylist())
                    for split, chosen in by_split(digests, rules.valid_fraction):
                        _append(writers[split], batch.take(pa.array(chosen)), eod)
                self._done += counted["rows"]
                if self.on_progress:
                    self.on_progress(self._done, self.rows)
            check_still_hashed(shard)
            splits = {name: writers[name].publish() for name in SPLITS}
        return ShardEntry(
            shard=shard.index,
            rows_read=read,
            rejected=dict(sorted(Counter(each["class"] for each in refused).items())),
            rejects_file=_publish_rejects(self.root, shard.index, refused, shard.format.id_column),
            splits=splits,
            cutting=dict(cutting),
        )

    def _parts(self, shard: SourceShard, read: int, pool: Pool | None) -> Iterator[tuple[PartTask, dict[str, Any]]]:
        """The finished parts in order."""
        yield from in_order(
            self._tasks(shard, read),
            partial(finished_part, resume=self.options.resume),
            pool,
            what=lambda task: f"shard {task.shard:02d}, rows from {task.rows.first_row}",
        )

    def _tasks(self, shard: SourceShard, read: int) -> Iterator[PartTask]:
        with open_source_shard(shard) as file:
            groups = [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
        index = 0
        for part in plan_parts(groups, max_rows=read):
            for rows in read_rows(shard, part):
                yield PartTask(
                    key=self.key,
                    folder=self.options.work,
                    index=index,
                    shard=shard.index,
                    rows=rows,
                    source_format=shard.format,
                    model=self.ingredients.folder,
                    rules=self.ingredients.rules,
                )
                index += 1

    def _take_ids(self, ids: Sequence[str], shard: SourceShard) -> None:
        for name, digest in zip(ids, id_digests(ids).tolist(), strict=True):
            if digest in self._seen:
                if self.options.on_duplicate == defaults.ON_DUPLICATE:
                    raise DuplicateIdError(
                        f"the id {name!r} is a duplicate",
                        where=shard.where,
                        remedy="give each conversation its own id, or keep both: --on-duplicate keep",
                    )
                self.repeated += 1
            self._seen.add(digest)


def _too_many(shard: SourceShard, refused: dict[str, Any], allowed: int) -> RejectedRowError:
    """The error for the refusal that stops the build."""
    more = f" (more than {allowed} conversations refused)" if allowed else ""
    run = "" if refused.get("run") is None else f", message {refused['run']}"
    aside = "set refused conversations aside with --max-rejects N (or 5%)"
    remedy = refused.get("remedy")
    return RejectedRowError(
        f"{refused['class']}: {refused['message']}{more}",
        where=f"{shard.path}, row {refused['row']}, id {refused['id']!r}{run}",
        remedy=f"{remedy}; or {aside}" if remedy else f"fix the row, or {aside}",
    )


def _append(writer: SplitWriter, batch: pa.RecordBatch, eod: int) -> None:
    ends = np.cumsum([len(each) for each in batch.column("document_tokens")])[:-1]
    tokens, spans = (np.split(batch.column(name).flatten().to_numpy(), ends) for name in ("document_tokens", "spans"))
    about = pa.RecordBatch.from_arrays([batch.column(name) for name in ABOUT_SCHEMA.names], schema=ABOUT_SCHEMA)
    writer.append_documents(about, tokens, spans, eod)


def _publish_rejects(root: Path, shard: int, refused: Sequence[dict[str, Any]], id_column: str) -> ListedFile | None:
    """Writes `rejects/shard_NN.jsonl`, a line for each refused row; None if there are none."""
    if not refused:
        return None
    lines = [
        canonical_json(
            {
                "shard": shard,
                "row": each["row"],
                id_column: each["id"],
                "reason": each["class"],
                "detail": each["message"],
                "run": each.get("run"),
                "remedy": each.get("remedy"),
            }
        )
        + b"\n"
        for each in refused
    ]
    return published(root, rejects_file(Path(), shard).as_posix(), b"".join(lines))


def _publish_files(root: Path, ingredients: Ingredients) -> tuple[ListedFile, ...]:
    """Writes what the tokens are made with: the model's files below `model/`, and the probe's result."""
    present = [name for name in MODEL_FILES if (ingredients.folder / name).is_file()]
    files = [published(root, f"{MODEL_FOLDER}/{name}", (ingredients.folder / name).read_bytes()) for name in present]
    return (*files, published(root, PROBE_NAME, readable_json(probed(ingredients))))


def probed(ingredients: Ingredients) -> dict[str, Any]:
    """The probe's result for the model under these rules, as JSON."""
    rules, proving = ingredients.rules, ingredients.proving
    result = probe(
        ingredients.model,
        probed_conversations(None),
        thinking=rules.thinking,
        variables=rules.variables,
        served=proving.served,
        control_texts=proving.control_texts,
        eod=proving.eod,
    )
    return as_json(result)


def _input(source: Source) -> Input:
    return Input(
        schema_version=source.format.schema_version,
        manifest_sha256=source.manifest_sha256,
        shards=tuple(
            InputShard(path=shard.path.name, rows=shard.rows, bytes=shard.bytes, sha256=shard.sha256)
            for shard in source.shards
        ),
        **named_origin(source.manifest),
    )


def check_caps_of(caps: RowCaps, root: str) -> None:
    """Raises ConflictError if a capped run has the default root (a path or a URI) of a full dataset."""
    if caps.any:
        check_capped_root(root, (defaults.ROOT,), remedy=f"give another root, such as {defaults.CAPPED_ROOT}")


def run(
    *,
    source: str,
    model: str,
    root: str,
    rules: ModelRules,
    asset: str | None = None,
    caps: RowCaps | None = None,
    shards: int | None = None,
    max_rejects: str = defaults.MAX_REJECTS,
    on_duplicate: str = defaults.ON_DUPLICATE,
    workers: int | None = None,
    allow_unknown_sha: bool = False,
    progress: Progress | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """Runs the step with paths or URIs. A remote root is claimed first.

    `asset`: where to put a copy of the tokenizer. `caps`: how many rows are read, None for all; `shards`: how many the
    source must have. Raises ConflictError if a capped run has the default root of a full dataset.
    """
    caps = caps or RowCaps()
    check_caps_of(caps, root)
    reject_limit(max_rejects, 0)
    with (
        scratch_for("tokenize-conversations", [source, model, root, asset], scratch) as staging,
        TemporaryDirectory(prefix="spanloom-") as work,
        held_model(staged_model(staging, model)) as folder,
    ):
        opened = open_source(staged_source(staging, source), FORMATS, shards=shards)
        loaded = load_ingredients(folder, rules)

        def make(place: Path) -> Manifest:
            options = TokenizeOptions(
                work=Path(work),
                caps=caps,
                max_rejects=max_rejects,
                on_duplicate=on_duplicate,
                workers=workers,
                allow_unknown_sha=allow_unknown_sha,
                environment={"source": source, "model": model, "root": root},
            )
            with nullcontext() if progress is None else progress.counting("prove", "conversations") as on_progress:
                return tokenize_conversations(
                    source=opened, ingredients=loaded, root=place, options=options, on_progress=on_progress
                )

        identity = {
            "config": config_of(loaded, caps),
            "inputs": [opened.manifest_sha256],
            "tokenizer_sha256": loaded.model.tokenizer.sha256,
        }
        staging.create(asset, loaded.model.tokenizer.path.read_bytes())
        return made_at(root, staging, lambda: identity, make)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return dataset_artifacts(result, tokenizer=("sha256",))
