"""Checks packed chat against its transcripts.

In: the dataset, the transcripts, how many blocks of each shard are packed again. Out: findings. The text of all blocks
is compared with the records. Where that leaves a doubt, all blocks of the shard are packed again.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from spanloom.dataset.family import OpenedShard, SourceCheck
from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.rows.places import rejected_rows, rows_of_file
from spanloom.dataset.validate.checks import TOKENS_AT_ONCE, opened_shard, take_rows
from spanloom.dataset.validate.content import check_stated, rows_to_read
from spanloom.dataset.validate.source import check_against_source, is_same_files
from spanloom.errors import SpanloomError
from spanloom.families.chat import defaults
from spanloom.families.chat.root import vocabulary
from spanloom.families.chat.root.blocks import ABOUT_SCHEMA
from spanloom.families.chat.tokenizer import ChatTokenizer
from spanloom.families.chat.transcripts.files import read_records, transcript_files
from spanloom.families.chat.verify.blocks import CheckedBlocks, Rules, check_blocks_again
from spanloom.families.chat.verify.content import check_tokenizer
from spanloom.families.chat.verify.stream import Block, counted_stream
from spanloom.findings import Report
from spanloom.records.files import name_below


def check_source(report: Report, check: SourceCheck) -> None:
    """The transcripts match the manifest, and packing them again gives the first `deep` blocks of each shard."""
    content = check.whole.content

    def opened(own: Report) -> tuple[Sequence[Path], ChatTokenizer | None] | None:
        files = transcript_files(check.source)
        if not is_same_files(own, check, files):
            return None
        loaded = _tokenizer(check)
        if loaded is not None:
            own.add(check_tokenizer(content, loaded))
        return files, loaded

    def check_shard(own: Report, shard: ShardEntry, opened: tuple[Sequence[Path], ChatTokenizer | None]) -> None:
        files, tokenizer = opened
        if shard.shard == 0:
            listed = [{"path": file.path, "rows": file.rows} for file in content.input.shards]
            own.add(check_stated(listed, list(_counted(files, check)), "input.shards", check="source"))
        _check_rejects(own, check, shard, files)
        if tokenizer is not None:
            for split in shard.splits:
                _pack_again(own, check, split, shard, files, tokenizer)

    check_against_source(report, check, opened, check_shard)


def _tokenizer(check: SourceCheck) -> ChatTokenizer | None:
    """The tokenizer; None if it is not there, and no block is to be packed again."""
    try:
        return vocabulary.tokenizer_of(check.whole.content.tokenizer, check.tokenizer)
    except SpanloomError:
        if check.deep or check.tokenizer is not None:
            raise
        return None


def _pack_again(
    report: Report, check: SourceCheck, split: str, shard: ShardEntry, files: Sequence[Path], tokenizer: ChatTokenizer
) -> None:
    """Compares the text of a shard with its records, and the first `deep` blocks with those that the records give."""
    whole, content = check.whole, check.whole.content
    rules = Rules.of(content)
    # The report already has a finding for the files.
    with opened_shard(Report(), whole.root, content, ABOUT_SCHEMA, split, shard, whole.open_with) as opened:
        if opened is None or (opened.datasets.lengths != rules.block_size).any():
            return
        every = opened.datasets.lengths.size

        def records() -> Iterator[str]:
            some = _texts(files, content)
            own = islice(some, shard.shard, rows_to_read(content, sys.maxsize), len(content.shards))
            return (text for text in own if text is not None)

        rows = take_rows(Report(), opened, 0, every)
        if rows is None:
            return
        count = min(check.deep, every)
        if count < every and _doubts(opened, rows, rules, records(), tokenizer):
            count = every
        if not count:
            return
        arrays = {name: np.concatenate(data[0:count]) for name, data in opened.datasets.datasets.items()}
        encoded = (tokenizer.encode([text]).tokens.tolist() for text in records())
        report.ran("blocks packed again", count)
        packing = shard.packing if count == every else None
        blocks = CheckedBlocks.of(opened, 0, arrays, rows.slice(0, count), rules)
        report.add(check_blocks_again(blocks, encoded, rules, packing))


def _doubts(
    opened: OpenedShard, rows: pa.Table, rules: Rules, records: Iterator[str], tokenizer: ChatTokenizer
) -> bool:
    """Whether the blocks may be others than those of the records, or the counts of the packing may be wrong."""
    texts, packing = vocabulary.texts_of(tokenizer), opened.shard.packing or {}
    if texts is None or packing.get("dropped_blocks", 0 if rules.keep_lossless else packing["lossless_blocks"]):
        return True

    def blocks() -> Iterator[Block]:
        for first, lengths, arrays in opened.datasets.batches(TOKENS_AT_ONCE):
            some = CheckedBlocks.of(opened, first, arrays, rows.slice(first, lengths.size), rules)
            for number, tokens in enumerate(some.tokens):
                start, padding = int(some.injected[number]), int(some.padding[number])
                own = tokens[start : rules.block_size - padding]
                stopped = start > 0 and not padding and not np.isin(own, rules.markers).any()
                yield Block(tokens=own, stopped=stopped)

    counted = counted_stream(blocks(), records, texts, lambda text: int(tokenizer.encode([text]).tokens.size))
    return counted is None or any(packing.get(name, number) != number for name, number in counted.items())


def _check_rejects(report: Report, check: SourceCheck, shard: ShardEntry, files: Sequence[Path]) -> None:
    """The records in the rejects file of a shard, if it has one, are those that are not text."""
    if shard.rejects_file is None:
        return
    content = check.whole.content
    own = rows_of_file(content, shard, sum(file.rows for file in content.input.shards))
    listed = [reject.row for reject in rejected_rows(check.whole.root, shard, "record", lambda _: None, own)]
    texts = islice(enumerate(_texts(files, content)), shard.shard, own.stop, len(content.shards))
    if (unread := [row for row, text in texts if text is None]) != listed:
        message = f"records {unread[:5]} … cannot be read, the rejects are records {listed[:5]} …"
        report.wrong("source", message, shard=shard.shard)


def _texts(files: Sequence[Path], content: Content) -> Iterator[str | None]:
    """All records of the stream; records that the build skipped are skipped here too.

    A manifest without `records` is of a version that accepted open spans.
    """
    records = content.config.get("records")
    closed = records is not None and content.config["post_training"]
    for file in files:
        yield from read_records(file, on_error="skip", records=records or defaults.RECORDS, closed=closed)


def _counted(files: Sequence[Path], check: SourceCheck) -> Iterator[dict[str, Any]]:
    """The names that the manifest must have for these transcripts, and their records, counted as the build does."""
    left = rows_to_read(check.whole.content, sys.maxsize)
    for file in files:
        rows = sum(1 for _ in islice(_texts([file], check.whole.content), left))
        left -= rows
        yield {"path": name_below(file, check.source), "rows": rows}
