"""Step pack-chat: transcripts → the files of a dataset, and its pending manifest.

In: a file or folder of transcripts, a tokenizer, the rules of packing. Out: under the dataset root
`train/shard_NN_{tokens,lossmask}.{bin,idx}`, `train/shard_NN_rows.parquet`, and `manifest.pending.json`. It becomes a
dataset only when validation passes.

Records are tokenised in parts, which are kept if a build stops: see `recipe`. This process then packs them, which is
much faster. It holds a part and the blocks that it completes.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from spanloom.building.assembly import assemble, write_inventory
from spanloom.building.options import RunOptions
from spanloom.building.ordered import pool_of
from spanloom.building.parts.stored import documents_of, read_folders
from spanloom.building.shards.files import discarding, shard_job, work_names
from spanloom.building.shards.making import ShardJob, make_shards, write_record
from spanloom.building.shards.writing import publish_rejects
from spanloom.building.steps import StepTask, shard_metadata, written_at
from spanloom.conversations.source.rejects import Reject, reject_limit
from spanloom.dataset.manifest import Manifest
from spanloom.dataset.root.places import made_at
from spanloom.dataset.split_writer import SplitWriter
from spanloom.errors import ChatError
from spanloom.families.chat import defaults
from spanloom.families.chat.packing import Blocks, Packer, PackingCounts
from spanloom.families.chat.recipe import (
    READ,
    UNREADABLE,
    ChatRecipe,
    Stream,
    config_of,
    recipe_of,
    source_files,
    useful_workers,
)
from spanloom.families.chat.recipe import PackingRules as PackingRules
from spanloom.families.chat.root.blocks import ABOUT_SCHEMA, ARRAY_DTYPES, SPAN_NAMES, SPLIT, append_blocks
from spanloom.families.chat.tokenizer import ChatTokenizer, load_tokenizer
from spanloom.families.chat.transcripts.files import SAY_RECORDS, OnError, are_marked, is_line_based, transcript_files
from spanloom.families.chat.transcripts.places import staged_tokenizer, staged_transcripts
from spanloom.kubeflow import dataset_artifacts
from spanloom.provenance import library_versions, require_git_sha
from spanloom.storage import sha256_file
from spanloom.storage.scratch import scratch_for
from spanloom.supervision import TokenDocuments
from spanloom.workers import OnProgress


def pack_chat(
    *,
    transcripts: Path,
    root: Path,
    work: Path,
    tokenizer: Path | None,
    rules: PackingRules,
    on_error: OnError = defaults.ON_ERROR,
    options: RunOptions,
    environment: Mapping[str, Any],
    on_progress: OnProgress | None = None,
    warn: Callable[[str], None] | None = None,
) -> Manifest:
    """Packs `transcripts` into a dataset at `root` and returns its pending manifest. `work`: the folder of
    intermediates.

    Files are never overwritten: an existing file with the same bytes counts as written. `environment`: added to the
    manifest's environment. `on_progress`: bytes of text tokenised so far, and the total estimated from file sizes.
    `warn` gets a message for input that is probably unintended.

    Raises ChatError for invalid rules, a tokenizer without the markers, if there is nothing to pack, and, with
    `post_training`, if no token has loss; RecordError for a record that is not text or, with `post_training`, leaves a
    span open (unless `on_error` is "skip", which counts it); ConflictError if a file exists with other bytes.
    """
    if rules.shards < 1:
        raise ChatError(f"there must be at least 1 shard, not {rules.shards}")
    made_by = require_git_sha(allow_unknown=options.allow_unknown_sha)
    loaded = load_tokenizer(tokenizer)
    config_of(rules, loaded)  # raises for invalid rules
    files = source_files(transcripts)
    if rules.records != "line" and not any(is_line_based(file.path) for file in files):
        raise ChatError(
            f"--records {rules.records} is for .txt files, and there are none",
            where=str(transcripts),
            remedy="omit it: a row of Parquet and a line of JSONL are a record",
        )
    if warn is not None and not rules.post_training and are_marked(transcripts, rules.records):
        warn(
            "warning: the transcripts mark their answers, and POST_TRAINING is off: loss is on every token, "
            "questions and system texts too (POST_TRAINING=1 or --post-training: on the answers alone)"
        )
    wanted = _on_error(on_error, options)
    recipe = recipe_of(files, loaded, rules, wanted, given=environment, on_progress=on_progress)
    job, record = _tokenised(recipe, transcripts, work, options)
    with ExitStack() as stack:
        shards = [_Shard(root, number, recipe, loaded, stack) for number in range(rules.shards)]
        _fill({shard.number: shard for shard in shards}, job, record)
        with discarding([job]):
            for shard in shards:
                shard.check_rejects(record, options.max_rejects)
            packed = [shard.packer.counts for shard in shards]
            _check_something(packed, record["rows_read"], rules, str(transcripts))
        listed = options.max_rejects is not None
        places = [work / work_names(shard.number)[2] for shard in shards]
        inventories = [shard.inventory(at, record, listed=listed) for shard, at in zip(shards, places, strict=True)]
    run_by = {"libraries": library_versions(*recipe.libraries), **environment}
    return assemble(inventories, None, root, git_sha=made_by, environment=run_by)


def _on_error(on_error: OnError, options: RunOptions) -> OnError:
    """Records that may be set aside are not errors."""
    return on_error if options.max_rejects is None else "skip"


def _tokenised(
    recipe: ChatRecipe, transcripts: Path, work: Path, options: RunOptions
) -> tuple[ShardJob, dict[str, Any]]:
    """All records as tokens, in parts below `work`.

    Each shard has its own limit of refused records, which is checked when all are read: a share is one of records that
    are not counted yet. Until then, as many are allowed as all shards may have.
    """
    shards, given = recipe.rules.shards if recipe.only is None else 1, options.max_rejects or ""
    limit = int(given) * shards if given.isdigit() else sys.maxsize
    job = replace(shard_job(Stream(where=str(transcripts)), 0, work, None), reject_limit=limit)
    with pool_of(options.workers or useful_workers(recipe.build["tokenizer"]["name"], transcripts)) as pool:
        ((job, summaries),) = make_shards(recipe, [job], pool, resume=options.resume)
    return job, write_record(recipe, 1, job, summaries)


def _fill(shards: Mapping[int, "_Shard"], job: ShardJob, record: Mapping[str, Any]) -> None:
    """Packs the tokens of all parts."""
    for part in read_folders(job.rendered, job.ids, record["parts"]):
        for batch in part.documents:
            numbers, runs = documents_of(batch)
            for at, number in enumerate(numbers.tolist()):
                shards[number].add(runs.between(at, at + 1))
        for line in part.rejects.splitlines(keepends=True):
            shards[orjson.loads(line)["shard"]].rejects.append(line)
    for shard in shards.values():
        shard.finish()


def identity_of(rules: PackingRules, tokenizer: ChatTokenizer, transcripts: Path) -> dict[str, Any]:
    """All inputs that change the bytes of a dataset, besides the code."""
    files = transcript_files(transcripts)
    return {"config": config_of(rules, tokenizer), "inputs": [sha256_file(file) for file in files]}


def _check_something(packed: Sequence[PackingCounts], rows_read: int, rules: PackingRules, transcripts: str) -> None:
    if not rows_read:
        raise ChatError(
            "there are no records to pack", where=transcripts, remedy="`spanloom chat generate` makes transcripts"
        )
    counts = sum(packed, PackingCounts())
    if not counts.blocks:
        if not counts.tokens_in:
            raise ChatError(f"all {rows_read:,} records were skipped: none is text", where=transcripts)
        raise ChatError(
            f"{counts.tokens_in:,} tokens in {rules.shards} shards give no block of {rules.block_size:,} tokens"
            + ("" if rules.keep_lossless else " that carries loss"),
            where=transcripts,
            remedy="take a smaller --block-size"
            + (", fewer --shards" if rules.shards > 1 else "")
            + (", or --pad-tail" if rules.keep_lossless else ", or --keep-lossless"),
        )
    if not counts.loss_tokens:
        raise ChatError(
            f"POST_TRAINING is on, and in {counts.blocks:,} blocks no token is trained: none holds a whole question "
            "with its whole answer",
            where=transcripts,
            remedy=f"is each record a whole conversation? {SAY_RECORDS}; is --block-size {rules.block_size} enough for "
            "a question and its answer?",
        )


class _Shard:
    """One shard: its packer, and its open files (closed by `stack`)."""

    def __init__(self, root: Path, number: int, recipe: ChatRecipe, tokenizer: ChatTokenizer, stack: ExitStack) -> None:
        config: Mapping[str, Any] = recipe.build["config"]
        self.number = number
        self._build = recipe.build
        self._shards, self._eos = recipe.rules.shards, tokenizer.markers.eos
        self.rejects: list[bytes] = []
        self._root = root
        options = {name: config[name] for name in ("block_size", "post_training", "strict_user", "keep_lossless")}
        self.packer = Packer(markers=tokenizer.markers, pad_tail=config["pad_tail"], **options)
        self._files = stack.enter_context(
            SplitWriter(root, SPLIT, number, arrays=ARRAY_DTYPES, span_names=SPAN_NAMES, about=ABOUT_SCHEMA)
        )

    def add(self, run: TokenDocuments) -> None:
        """Packs the tokens of further records of this shard."""
        self._write(self.packer.feed(run.tokens))

    def finish(self) -> None:
        """Drops or pads the last, shorter block."""
        last = self.packer.finish()
        self._write(last, padding=self.packer.counts.padding_tokens)

    def check_rejects(self, of_stream: Mapping[str, Any], max_rejects: str | None) -> None:
        """Raises RejectedRowError if too many records were refused. `of_stream`: the record of all records."""
        if max_rejects is None:
            return
        allowed = reject_limit(max_rejects, of_stream[READ].get(str(self.number), 0))
        if len(self.rejects) > allowed:
            line = orjson.loads(self.rejects[allowed])
            reject = Reject(id=line.pop("record"), id_column="record", **line)
            raise reject.as_error(allowed=allowed, shard=f"shard {self.number:02d}")

    def inventory(self, path: Path, of_stream: Mapping[str, Any], *, listed: bool) -> dict[str, Any]:
        """Publishes the files; writes the inventory and returns it. `listed`: whether refused records are written."""
        skipped = len(self.rejects)
        file = publish_rejects(b"".join(self.rejects), self.number, self._root) if listed else None
        record = {
            **of_stream,
            "shard": self.number,
            "shards": self._shards,
            "rows_read": of_stream[READ].get(str(self.number), 0),
            "rejected": {UNREADABLE: skipped} if skipped else {},
            "packing": asdict(self.packer.counts),
        }
        return write_inventory(path, "", self._build, record, {SPLIT: self._files.publish()}, file)

    def _write(self, blocks: Blocks, padding: int = 0) -> None:
        if not len(blocks):
            return
        append_blocks(self._files, blocks, eos=self._eos, padding=padding)


def run(
    *,
    transcripts: str,
    root: str,
    rules: PackingRules,
    tokenizer: str | None = None,
    asset: str | None = None,
    on_error: OnError = defaults.ON_ERROR,
    task: StepTask,
    on_progress: OnProgress | None = None,
    warn: Callable[[str], None] | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step on paths or URIs. A remote root is first claimed for this dataset.

    `asset`: where a copy of the tokenizer goes. Other options: see `pack_chat`. Raises ConflictError if another build
    has claimed the root, or a file exists with other bytes.

    A task for one shard packs and writes that shard alone, of all transcripts. Returns its inventory, otherwise the
    pending manifest.
    """
    task.check()
    shard, inventory = task.shard, task.inventory
    with scratch_for("pack-chat", [transcripts, root, tokenizer, asset, shard], scratch) as staging:
        source = staged_transcripts(staging, transcripts)
        loaded = load_tokenizer(staged_tokenizer(staging, tokenizer))
        places = {"source": transcripts, "tokenizer": tokenizer or str(loaded.path), "root": root}
        staging.create(asset, loaded.path.read_bytes())
        work = staging.inner("parts")
        if shard is not None:
            if not 0 <= shard < rules.shards or inventory is None:
                raise ChatError(f"there is no shard {shard} of {rules.shards}", remedy="give --shard and --inventory")
            recipe = recipe_of(source_files(source), loaded, rules, _on_error(on_error, task), given=places, only=shard)
            job, record = _tokenised(recipe, source, work, task)

            def write(folder: Path, made: Path) -> dict[str, Any]:
                with ExitStack() as stack:
                    this = _Shard(folder, shard, recipe, loaded, stack)
                    _fill({shard: this}, job, record)
                    this.check_rejects(record, task.max_rejects)
                    return this.inventory(made, record, listed=task.max_rejects is not None)

            build = {"shards": rules.shards, **recipe.build, "inputs": recipe.identity()["inputs"]}
            return written_at(staging, root, inventory, build, write)

        def pack(folder: Path) -> Manifest:
            return pack_chat(
                transcripts=source,
                root=folder,
                work=work,
                tokenizer=loaded.path,
                rules=rules,
                on_error=on_error,
                options=task,
                environment=places,
                on_progress=on_progress,
                warn=warn,
            )

        return made_at(root, staging, lambda: identity_of(rules, loaded, source), pack)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if "entry" in result:
        return shard_metadata(result)
    content = result["content"]
    settings = {name: content["config"][name] for name in ("block_size", "post_training", "strict_user")}
    return dataset_artifacts(result, tokenizer=("name", "sha256", "vocab_size", "eod"), **settings)
