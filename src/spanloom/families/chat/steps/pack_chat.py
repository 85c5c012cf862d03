"""Step pack-chat: transcripts → the files of a dataset, and its pending manifest.

In: a file or folder of transcripts, a tokenizer, the rules of packing. Out: under the dataset root
`train/shard_NN_{tokens,lossmask}.{bin,idx}`, `train/shard_NN_rows.parquet`, and `manifest.pending.json`. It becomes a
dataset only when validation passes.

Record i of the stream goes to shard i mod T before packing. Records are read in order. Worker processes tokenise them
in batches, and the results are taken in order, so bytes do not depend on the number of workers. This process then packs
them, which is much faster. It holds a few batches and the blocks that they complete.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.dataset import manifest
from spanloom.dataset.manifest import Content, Input, InputShard, Manifest, ShardEntry, TokenizerEntry
from spanloom.dataset.root.inventory import add_up
from spanloom.dataset.root.places import made_at
from spanloom.dataset.split_writer import SplitWriter
from spanloom.errors import ChatError
from spanloom.families.chat import defaults
from spanloom.families.chat.markers import MARKER_NAMES
from spanloom.families.chat.options.pack import PackingRules as PackingRules
from spanloom.families.chat.packing import Blocks, Packer, PackingCounts
from spanloom.families.chat.root.blocks import (
    ABOUT_SCHEMA,
    ARRAY_DTYPES,
    FAMILY,
    INPUT_SCHEMA,
    SPAN_NAMES,
    SPLIT,
    append_blocks,
)
from spanloom.families.chat.tokenizer import O200K_NAME, ChatTokenizer, load_tokenizer
from spanloom.families.chat.transcripts.files import (
    SAY_RECORDS,
    OnError,
    are_marked,
    is_line_based,
    read_records,
    text_bytes,
    transcript_files,
)
from spanloom.families.chat.transcripts.places import staged_tokenizer, staged_transcripts
from spanloom.kubeflow import dataset_artifacts
from spanloom.machine import usable_cpus
from spanloom.provenance import environment_here, library_versions, require_git_sha, sha256_json
from spanloom.records.files import name_below
from spanloom.storage import sha256_file
from spanloom.storage.scratch import scratch_for
from spanloom.storage.unchanged import check_unchanged, file_state
from spanloom.supervision import ALIGNMENT
from spanloom.tokenizers.o200k.encoder import EncodedTexts
from spanloom.workers import OnProgress, Pool, process_pool

BATCH_CHARACTERS, BATCH_RECORDS = 1 << 20, 4096
"""A batch ends at the limit that is reached first: records may have any length."""

BYTES_PER_WORKER = 4 << 20
"""A worker takes about two seconds to start; a `tokenizers` file encodes about this much text in that time."""


def pack_chat(
    *,
    transcripts: Path,
    root: Path,
    tokenizer: Path | None,
    rules: PackingRules,
    workers: int | None = None,
    on_error: OnError = defaults.ON_ERROR,
    allow_unknown_sha: bool = False,
    environment: dict[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    warn: Callable[[str], None] | None = None,
) -> Manifest:
    """Packs `transcripts` into a dataset at `root` and returns its pending manifest.

    `workers`: number of tokenising processes, None for as many as `useful_workers` returns. Files are never
    overwritten: an existing file with the same bytes counts as written. `environment`: added to the manifest's
    environment. `on_progress`: bytes of text packed so far, and the total estimated from file sizes. `warn` gets a
    message for input that is probably unintended.

    Raises ChatError for invalid rules, a tokenizer without the markers, if there is nothing to pack, and, with
    `post_training`, if no token has loss; RecordError for a record that is not text or, with `post_training`, leaves a
    span open (unless `on_error` is "skip", which counts it); ConflictError if a file exists with other bytes.
    """
    if rules.shards < 1:
        raise ChatError(f"there must be at least 1 shard, not {rules.shards}")
    made_by = require_git_sha(allow_unknown=allow_unknown_sha)
    loaded = load_tokenizer(tokenizer)
    config = config_of(rules, loaded)
    files = transcript_files(transcripts)
    if rules.records != "line" and not any(is_line_based(file) for file in files):
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
    before = [file_state(file) for file in files]
    inputs: list[dict[str, Any]] = [
        {"path": name_below(file, transcripts), "rows": 0, "bytes": file.stat().st_size, "sha256": sha256_file(file)}
        for file in files
    ]
    sizes = [text_bytes(file) for file in files]
    workers = workers or useful_workers(loaded, transcripts)
    with ExitStack() as stack:
        pool = stack.enter_context(process_pool(workers)) if workers > 1 else None
        shards = [_Shard(root, number, config, loaded, stack) for number in range(rules.shards)]
        records = _records(files, inputs, sizes, on_error, rules)
        for batch in _tokenised(records, tokenizer, pool):
            for shard in shards:
                shard.add(batch, len(shards))
            if on_progress:
                on_progress(batch.done, sum(sizes))
        for shard in shards:
            shard.finish()
        for file, state, hashed in zip(files, before, inputs, strict=True):
            check_unchanged(file, state, sha256=hashed["sha256"])
        _check_something(shards, rules, transcripts)
        entries = [shard.publish() for shard in shards]
    content = Content(
        family=FAMILY,
        git_sha=made_by,
        config=config,
        config_sha256=sha256_json(config),
        tokenizer=TokenizerEntry(
            name=loaded.name, sha256=loaded.sha256, vocab_size=loaded.vocab_size, eod=loaded.markers.eos
        ),
        input=Input(schema_version=INPUT_SCHEMA, shards=tuple(InputShard.model_validate(file) for file in inputs)),
        alignment=ALIGNMENT,
        arrays=ARRAY_DTYPES,
        span_names=SPAN_NAMES,
        totals=add_up(entries),
        shards=tuple(entries),
    )
    run_by = {"libraries": library_versions("tokenizers"), **(environment or {}), "workers": workers}
    whole = manifest.new_manifest(content, environment_here(run_by))
    manifest.write_pending(root, whole.as_dict())
    return whole


def useful_workers(tokenizer: ChatTokenizer, transcripts: Path) -> int:
    """The number of processes that tokenise these transcripts fastest, on the CPUs that this process may use.

    One, this process, for the o200k vocabulary: it encodes a text faster than the text and its tokens can be sent
    between processes. A `tokenizers` file takes ten times as long or more.
    """
    if tokenizer.name == O200K_NAME:
        return 1
    size = sum(text_bytes(file) for file in transcript_files(transcripts))
    return max(1, min(usable_cpus(), size // BYTES_PER_WORKER))


def config_of(rules: PackingRules, tokenizer: ChatTokenizer) -> dict[str, Any]:
    """The config that a manifest records and hashes: all options that change the bytes. Raises ChatError for invalid
    rules."""
    pad = tokenizer.markers.pad
    if rules.pad_tail and pad is None:
        raise ChatError("the tokenizer has no <|PAD|> to pad with", remedy="leave --pad-tail away")
    ids = {name: getattr(tokenizer.markers, name) for name in MARKER_NAMES}
    return {
        "input_schema": INPUT_SCHEMA,
        **asdict(rules),
        "pad_tail": pad if rules.pad_tail else None,
        "markers": {
            name: {"text": MARKER_NAMES[name], "id": token} for name, token in ids.items() if token is not None
        },
        "tokenizer_sha256": tokenizer.sha256,
        "alignment": ALIGNMENT,
        "arrays": ARRAY_DTYPES,
    }


def identity_of(rules: PackingRules, tokenizer: ChatTokenizer, transcripts: Path) -> dict[str, Any]:
    """All inputs that change the bytes of a dataset, besides the code."""
    files = transcript_files(transcripts)
    return {"config": config_of(rules, tokenizer), "inputs": [sha256_file(file) for file in files]}


def _check_something(shards: list["_Shard"], rules: PackingRules, transcripts: Path) -> None:
    if not any(shard.rows_read for shard in shards):
        raise ChatError(
            "there are no records to pack", where=str(transcripts), remedy="`spanloom chat generate` makes transcripts"
        )
    counts = sum((shard.packer.counts for shard in shards), PackingCounts())
    if not counts.blocks:
        if not counts.tokens_in:
            skipped = sum(shard.rows_read for shard in shards)
            raise ChatError(f"all {skipped:,} records were skipped: none is text", where=str(transcripts))
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


@dataclass(frozen=True, kw_only=True)
class _Records:
    """Consecutive records of the stream: `first` is the number of the first, `done` the progress after them."""

    first: int
    texts: list[str | None]
    done: int


@dataclass(frozen=True, kw_only=True)
class _Tokenised:
    """A batch as tokens: which records are text, bool [N], and the tokens of those."""

    first: int
    is_text: npt.NDArray[np.bool_]
    encoded: EncodedTexts
    done: int


def _records(
    files: list[Path], inputs: list[dict[str, Any]], sizes: list[int], on_error: OnError, rules: PackingRules
) -> Iterator[_Records]:
    """All records in order, in batches; none spans two files. Counts the rows of each file in `inputs`."""
    first = 0
    for number, file in enumerate(files):
        texts: list[str | None] = []
        characters = read = 0
        before, size = sum(sizes[:number]), sizes[number]
        for text in read_records(
            file, on_error=on_error, first=first, records=rules.records, closed=rules.post_training
        ):
            texts.append(text)
            inputs[number]["rows"] += 1
            characters += len(text or "")
            if characters >= BATCH_CHARACTERS or len(texts) >= BATCH_RECORDS:
                read += characters
                yield _Records(first=first, texts=texts, done=before + min(read, size))
                first, texts, characters = first + len(texts), [], 0
        if texts:
            yield _Records(first=first, texts=texts, done=before + size)
            first += len(texts)


def _tokenised(records: Iterable[_Records], tokenizer: Path | None, pool: Pool | None) -> Iterator[_Tokenised]:
    """Batches as tokens, in order. At most two per worker are in flight."""
    if pool is None:
        yield from (_tokenise(batch, tokenizer) for batch in records)
        return
    waiting: deque[tuple[_Records, Future[_Tokenised]]] = deque()
    for batch in records:
        waiting.append((batch, pool.submit(_tokenise, batch, tokenizer)))
        if len(waiting) > 2 * pool.workers:
            yield _result(pool, *waiting.popleft())
    while waiting:
        yield _result(pool, *waiting.popleft())


def _result(pool: Pool, batch: _Records, future: "Future[_Tokenised]") -> _Tokenised:
    return pool.result(future, f"records {batch.first} … {batch.first + len(batch.texts) - 1}")


def _tokenise(batch: _Records, tokenizer: Path | None) -> _Tokenised:
    is_text = np.array([text is not None for text in batch.texts], dtype=np.bool_)
    texts = [text for text in batch.texts if text is not None]
    encoded = _tokenizer(tokenizer).encode(texts, first=batch.first)
    return _Tokenised(first=batch.first, is_text=is_text, encoded=encoded, done=batch.done)


@cache
def _tokenizer(path: Path | None) -> ChatTokenizer:
    """The tokenizer of this process."""
    return load_tokenizer(path)


class _Shard:
    """One shard: its packer, its open files (closed by `stack`), and the number of its records."""

    def __init__(
        self, root: Path, number: int, config: dict[str, Any], tokenizer: ChatTokenizer, stack: ExitStack
    ) -> None:
        self.number, self.rows_read = number, 0
        self._eos = tokenizer.markers.eos
        self._rejected: Counter[str] = Counter()
        options = {name: config[name] for name in ("block_size", "post_training", "strict_user", "keep_lossless")}
        self.packer = Packer(markers=tokenizer.markers, pad_tail=config["pad_tail"], **options)
        self._files = stack.enter_context(
            SplitWriter(root, SPLIT, number, arrays=ARRAY_DTYPES, span_names=SPAN_NAMES, about=ABOUT_SCHEMA)
        )

    def add(self, batch: _Tokenised, shards: int) -> None:
        """Packs the records of a batch that belong to this shard."""
        ours = np.arange(batch.first, batch.first + batch.is_text.size) % shards == self.number
        self.rows_read += int(ours.sum())
        if skipped := int((ours & ~batch.is_text).sum()):
            self._rejected["unreadable"] += skipped
        tokens, lengths = batch.encoded.tokens, batch.encoded.lengths
        self._write(self.packer.feed(tokens if shards == 1 else tokens[np.repeat(ours[batch.is_text], lengths)]))

    def finish(self) -> None:
        """Drops or pads the last, shorter block."""
        last = self.packer.finish()
        self._write(last, padding=self.packer.counts.padding_tokens)

    def publish(self) -> ShardEntry:
        """Publishes the files; returns this shard's entry of the manifest."""
        return ShardEntry(
            shard=self.number,
            rows_read=self.rows_read,
            rejected=dict(self._rejected),
            rejects_file=None,
            splits={SPLIT: self._files.publish()},
            packing=asdict(self.packer.counts),
        )

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
    scratch: Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The step on paths or URIs. A remote root is first claimed for this dataset.

    `asset`: where a copy of the tokenizer goes. `options`: see `pack_chat`. Raises ConflictError if another build has
    claimed the root, or a file exists with other bytes.
    """
    with scratch_for("pack-chat", [transcripts, root, tokenizer, asset], scratch) as staging:
        source = staged_transcripts(staging, transcripts)
        loaded = load_tokenizer(staged_tokenizer(staging, tokenizer))

        def pack(folder: Path) -> Manifest:
            places = {"source": transcripts, "tokenizer": tokenizer or str(loaded.path), "root": root}
            return pack_chat(
                transcripts=source, root=folder, tokenizer=loaded.path, rules=rules, environment=places, **options
            )

        staging.create(asset, loaded.path.read_bytes())
        return made_at(root, staging, lambda: identity_of(rules, loaded, source), pack)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    content = result["content"]
    settings = {name: content["config"][name] for name in ("block_size", "post_training", "strict_user")}
    packing = content["totals"]["packing"]
    return dataset_artifacts(result, tokenizer=("name", "sha256", "vocab_size", "eod"), numbers=packing, **settings)
