"""Step pack-chat: transcripts → the files of a dataset, and its pending manifest.

In: a file or folder of transcripts, a tokenizer, the rules of packing. Out: under the dataset root
`train/shard_NN_{tokens,lossmask}.{bin,idx}`, `train/shard_NN_rows.parquet`, and `manifest.pending.json`. It becomes a
dataset only when validation passes.

Records are tokenised in parts, which are kept if a build stops: see `recipe`. This process then packs them, which is
much faster. It holds a part and the blocks that it completes.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from spanloom.building.assembly import assemble, write_inventory
from spanloom.building.files import shard_job, work_names
from spanloom.building.making import make_shards, write_record
from spanloom.building.options import RunOptions
from spanloom.building.ordered import pool_of
from spanloom.building.parts import documents_of, read_folders
from spanloom.dataset.manifest import Manifest, ShardSplit
from spanloom.dataset.root.places import made_at
from spanloom.dataset.split_writer import SplitWriter
from spanloom.errors import ChatError
from spanloom.families.chat import defaults
from spanloom.families.chat.packing import Blocks, Packer, PackingCounts
from spanloom.families.chat.recipe import READ, UNREADABLE, Stream, config_of, recipe_of, source_files, useful_workers
from spanloom.families.chat.recipe import PackingRules as PackingRules
from spanloom.families.chat.root.blocks import (
    ABOUT_SCHEMA,
    ARRAY_DTYPES,
    SPAN_NAMES,
    SPLIT,
    append_blocks,
)
from spanloom.families.chat.tokenizer import ChatTokenizer, load_tokenizer
from spanloom.families.chat.transcripts.files import (
    SAY_RECORDS,
    OnError,
    are_marked,
    is_line_based,
    transcript_files,
)
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
    recipe = recipe_of(files, loaded, rules, on_error, given=environment, on_progress=on_progress)
    workers = options.workers or useful_workers(loaded, transcripts)
    job = shard_job(Stream(where=str(transcripts)), 0, work, None)
    with pool_of(workers) as pool:
        ((job, summaries),) = make_shards(recipe, [job], pool, resume=options.resume)
    record = write_record(recipe, 1, job, summaries)
    with ExitStack() as stack:
        shards = [
            _Shard(root, number, recipe.facts_of_build["config"], loaded, stack) for number in range(rules.shards)
        ]
        for part in read_folders(job.rendered, job.ids, record["parts"]):
            for batch in part.documents:
                numbers, runs = documents_of(batch)
                for at, number in enumerate(numbers.tolist()):
                    shards[number].add(runs.between(at, at + 1))
        for shard in shards:
            shard.finish()
        _check_something(shards, record, rules, transcripts)
        inventories = [
            write_inventory(
                work / work_names(shard.number)[2], "", record["build"], shard.record(record), shard.publish(), None
            )
            for shard in shards
        ]
    run_by = {"libraries": library_versions("tokenizers"), **environment, "workers": workers}
    return assemble(inventories, None, root, git_sha=made_by, environment=run_by)


def identity_of(rules: PackingRules, tokenizer: ChatTokenizer, transcripts: Path) -> dict[str, Any]:
    """All inputs that change the bytes of a dataset, besides the code."""
    files = transcript_files(transcripts)
    return {"config": config_of(rules, tokenizer), "inputs": [sha256_file(file) for file in files]}


def _check_something(shards: list["_Shard"], record: Mapping[str, Any], rules: PackingRules, transcripts: Path) -> None:
    if not record["rows_read"]:
        raise ChatError(
            "there are no records to pack", where=str(transcripts), remedy="`spanloom chat generate` makes transcripts"
        )
    counts = sum((shard.packer.counts for shard in shards), PackingCounts())
    if not counts.blocks:
        if not counts.tokens_in:
            raise ChatError(f"all {record['rows_read']:,} records were skipped: none is text", where=str(transcripts))
        raise ChatError(
            f"{counts.tokens_in:,} tokens in {rules.shards} shards give no block of {rules.block_size:,} tokens"
            + ("" if rules.keep_lossless else " that carries loss"),
            where=str(transcripts),
            remedy="take a smaller --block-size"
            + (", fewer --shards" if rules.shards > 1 else "")
            + (", or --pad-tail" if rules.keep_lossless else ", or --keep-lossless"),
        )
    if not counts.loss_tokens:
        raise ChatError(
            f"POST_TRAINING is on, and in {counts.blocks:,} blocks no token is trained: none holds a whole question "
            "with its whole answer",
            where=str(transcripts),
            remedy=f"is each record a whole conversation? {SAY_RECORDS}; is --block-size {rules.block_size} enough for "
            "a question and its answer?",
        )


class _Shard:
    """One shard: its packer, and its open files (closed by `stack`)."""

    def __init__(
        self, root: Path, number: int, config: Mapping[str, Any], tokenizer: ChatTokenizer, stack: ExitStack
    ) -> None:
        self.number = number
        self._eos = tokenizer.markers.eos
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

    def publish(self) -> dict[str, ShardSplit]:
        """Publishes the files; returns their entry of the manifest."""
        return {SPLIT: self._files.publish()}

    def record(self, of_stream: Mapping[str, Any]) -> dict[str, Any]:
        """The record of this shard, from that of all records."""
        skipped = of_stream[UNREADABLE].get(str(self.number), 0)
        return {
            **of_stream,
            "shard": self.number,
            "shards": of_stream["build"]["config"]["shards"],
            "rows_read": of_stream[READ].get(str(self.number), 0),
            "rejected": {UNREADABLE: skipped} if skipped else {},
            "packing": asdict(self.packer.counts),
        }

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
    workers: int | None = None,
    on_error: OnError = defaults.ON_ERROR,
    allow_unknown_sha: bool = False,
    on_progress: OnProgress | None = None,
    warn: Callable[[str], None] | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step on paths or URIs. A remote root is first claimed for this dataset.

    `asset`: where a copy of the tokenizer goes. Other options: see `pack_chat`. Raises ConflictError if another build
    has claimed the root, or a file exists with other bytes.
    """
    with (
        scratch_for("pack-chat", [transcripts, root, tokenizer, asset], scratch) as staging,
        TemporaryDirectory(prefix="spanloom-") as work,
    ):
        source = staged_transcripts(staging, transcripts)
        loaded = load_tokenizer(staged_tokenizer(staging, tokenizer))

        def pack(folder: Path) -> Manifest:
            places = {"source": transcripts, "tokenizer": tokenizer or str(loaded.path), "root": root}
            return pack_chat(
                transcripts=source,
                root=folder,
                work=Path(work),
                tokenizer=loaded.path,
                rules=rules,
                on_error=on_error,
                options=RunOptions(max_rejects=None, workers=workers, allow_unknown_sha=allow_unknown_sha),
                environment=places,
                on_progress=on_progress,
                warn=warn,
            )

        staging.create(asset, loaded.path.read_bytes())
        return made_at(root, staging, lambda: identity_of(rules, loaded, source), pack)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    content = result["content"]
    settings = {name: content["config"][name] for name in ("block_size", "post_training", "strict_user")}
    packing = content["totals"]["packing"]
    return dataset_artifacts(result, tokenizer=("name", "sha256", "vocab_size", "eod"), numbers=packing, **settings)
