"""Packed chat for the shared commands: this module implements `spanloom.dataset.family.DatasetFamily`.

In: blocks on disk, a manifest's `content`. Out: findings and values.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.dataset import family
from spanloom.dataset.document import ShownMessage, ShownToken
from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.rows.digests import DigestRuns, Digests
from spanloom.dataset.rows.places import rejected_rows, rows_of_file
from spanloom.dataset.validate.checks import TOKENS_AT_ONCE, check_span_tokens, take_rows
from spanloom.dataset.validate.content import wrong
from spanloom.families.chat.root import blocks, vocabulary
from spanloom.families.chat.transcripts.places import staged_tokenizer, staged_transcripts
from spanloom.families.chat.verify import blocks as verify
from spanloom.families.chat.verify import content as verify_content
from spanloom.families.chat.verify.content import check_content as check_content
from spanloom.families.chat.verify.sequence import OpenStream, check_sequence
from spanloom.families.chat.verify.source import check_source as check_source
from spanloom.findings import Finding, Report
from spanloom.report.card import code

ID_COLUMN = None
GROUP_COLUMNS = ()
ROW_SCHEMA = blocks.ABOUT_SCHEMA
ARRAY_DTYPES, SPAN_NAMES = blocks.ARRAY_DTYPES, blocks.SPAN_NAMES
header_tokens = family.no_header_tokens
layout = family.one_layout(ARRAY_DTYPES, SPAN_NAMES)
row_schema = family.one_row_schema(ROW_SCHEMA)
SPLITS = (blocks.SPLIT,)
RATIO = None

_NO_DIGESTS: Digests = np.empty(0, dtype=np.uint64)


def check_sums(content: Content, shard: ShardEntry) -> Iterator[Finding]:
    """Each token of the source, each copy and each padding token is in a block, or counted as dropped or given up."""
    packing = _packing(shard)
    written = sum(counts.tokens for counts in shard.splits.values())
    came = packing["tokens_in"] + packing["injected_tokens"] + packing["padding_tokens"]
    went = written + packing["dropped_tokens"] + packing["tokens_given_up"] + packing["tail_tokens"]
    if came != went:
        message = f"{came} tokens came in, were injected or padded, but {went} were written, dropped or given up"
        yield wrong(message, shard.shard)
    yield from verify_content.check_packing(content, shard, packing)


def _packing(shard: ShardEntry) -> dict[str, int]:
    assert shard.packing is not None, "the schema demands it of this family"
    return shard.packing


def check_shard(report: Report, opened: family.OpenedShard, run: family.CheckRun) -> Digests:
    """Every block: its loss mask, its row, and the counts of the packing. Blocks have no ids."""
    rules = verify.Rules.of(opened.content)
    lengths = opened.datasets.lengths
    if (odd := np.flatnonzero(lengths != rules.block_size)).size:
        message = f"{lengths[odd[0]]} tokens, blocks have {rules.block_size}"
        report.add([opened.finding("block_size", message, int(odd[0]))])
        return _NO_DIGESTS  # the block checks need whole blocks
    totals = np.zeros(len(opened.content.span_names), dtype=np.int64)
    counted = ("blocks", "injected_tokens", "injected_blocks", "padding_tokens", "lossless_blocks", "loss_tokens")
    counts = dict.fromkeys(counted, 0)
    packing = _packing(opened.shard)
    dropped = packing.get("dropped_blocks", 0 if rules.keep_lossless else packing["lossless_blocks"])
    stream = OpenStream(whole=not dropped, closed="records" in opened.content.config)
    for first, lengths, arrays in opened.datasets.batches(TOKENS_AT_ONCE):
        rows = take_rows(report, opened, first, lengths.size)
        if rows is None:
            break
        some = verify.CheckedBlocks.of(opened, first, arrays, rows, rules)
        report.ran("documents", lengths.size)
        report.ran("tokens", some.tokens.size)
        report.add(verify.check_blocks(some, rules))
        report.add(verify.check_rows(some, rows, rules))
        report.add(check_sequence(some, rules, stream))
        totals += np.bincount(some.lossmask.reshape(-1), minlength=totals.size)[: totals.size]
        counts["blocks"] += lengths.size
        counts["injected_tokens"] += int(some.injected.sum())
        counts["injected_blocks"] += int(np.count_nonzero(some.injected))
        counts["padding_tokens"] += int(some.padding.sum())
        if rules.post_training:  # else the first token of a block has loss too, though it is no label
            counts["lossless_blocks"] += int((~some.lossmask.any(axis=1)).sum())
        run.checked(arrays["tokens"], lengths)
    # Labels, plus the first token of each block: it is nobody's label, but has loss if all tokens have.
    counts["loss_tokens"] = int(totals[1]) + (0 if rules.post_training else counts["blocks"])
    check_span_tokens(report, opened, totals)
    if stream.whole and packing.get("stops", stream.stops) != stream.stops:
        message = f"stops is {packing['stops']}, by the blocks it is {stream.stops}"
        report.add([opened.finding("manifest", message)])
    _check_packing(report, opened, counts, rules)
    return _NO_DIGESTS


def check_whole(report: Report, whole: family.WholeCheck, digests: DigestRuns) -> None:
    """Of records, only those that were refused are known by number: blocks have no ids."""
    records = sum(file.rows for file in whole.content.input.shards)

    def check_rejects(own: Report, shard: ShardEntry) -> None:
        faults: list[Finding] = []
        rows = rows_of_file(whole.content, shard, records)
        listed = sum(1 for _ in rejected_rows(whole.root, shard, "record", faults.append, rows))
        own.add(faults)
        if shard.rejects_file is not None and listed != (refused := sum(shard.rejected.values())):
            own.wrong("rejects", f"{listed} records are listed, {refused} were refused", shard=shard.shard)

    whole.run.each(report, whole.content.shards, check_rejects)


def _check_packing(report: Report, opened: family.OpenedShard, counts: dict[str, int], rules: verify.Rules) -> None:
    """The packing counts of the manifest that can be recounted from disk."""
    stated = _packing(opened.shard)
    for name, count in counts.items():
        if name == "lossless_blocks" and not rules.keep_lossless:
            if count:
                report.add([opened.finding("manifest", f"{count} blocks carry no loss, and such were to be dropped")])
            continue  # dropped blocks are counted in the manifest, but are not on disk
        if stated.get(name, count) != count:
            report.add([opened.finding("manifest", f"{name} is {count}, the manifest says {stated[name]}")])


stage_source, stage_tokenizer = staged_transcripts, staged_tokenizer


def load_vocabulary(content: Content, tokenizer: Path | None) -> family.Vocabulary:
    """Vocabulary of the tokenizer that the blocks were packed with."""
    return vocabulary.load_vocabulary(content.tokenizer, tokenizer)


def cut_messages(content: Content, tokens: Sequence[ShownToken], row: Mapping[str, Any]) -> Iterator[ShownMessage]:
    """Cuts a block at its markers: spans with their END, each EOS, and tokens outside of spans.

    The first `injected_tokens` of the row are labelled as copies.
    """
    names = {marker["id"]: name for name, marker in content.config["markers"].items()}
    begins = {at: names[token.id] for at, token in enumerate(tokens) if names.get(token.id) not in (None, "end", "pad")}
    after = {at + 1 for at, token in enumerate(tokens) if names.get(token.id) in ("end", "eos")}
    edges = sorted({0, *begins, *(at for at in after if at < len(tokens)), len(tokens)})
    roles = {"eos": "end of conversation", "system": "system", "user": "user", "assistant": "assistant"}
    for first, last in pairwise(edges):
        # The last token decides the span, as for a message.
        role = roles[begins[first]] if first in begins else "outside of spans" if first else "goes on"
        channel = "injected" if first < row["injected_tokens"] else ""
        yield ShownMessage.of(tokens[last - 1], first, last, role=role, channel=channel)


def document_notes(row: Mapping[str, Any]) -> Iterator[str]:
    """The number of conversations that end in a block, and of its copied and padding tokens."""
    ends = row["conversations"]
    yield "1 conversation ends here" if ends == 1 else f"{ends:,} conversations end here"
    for name, label in (("injected_tokens", "injected"), ("padding_tokens", "of padding")):
        if row[name]:
            yield f"{row[name]:,} token{'' if row[name] == 1 else 's'} {label}"


def describe(content: Content) -> family.Description:
    """For the dataset card: block length, trained tokens, and the count of each use of the stream's tokens."""
    config, packing = content.config, content.totals.packing
    assert packing is not None, "the schema demands it of this family"
    size = config["block_size"]
    origin = content.input.dataset
    made_from = f"from {code(origin)} " if origin else ""
    trained = "Loss is on the assistant's spans alone" if config["post_training"] else "Every token counts"
    markers = ", ".join(f"{code(marker['text'])} {marker['id']}" for marker in config["markers"].values())
    result = _result(config, packing)
    return family.Description(
        tags=("packed-chat",),
        introduction=f"Chat transcripts {made_from}packed into blocks of {size:,} tokens for Megatron. {trained}."
        f" One document is one block: read them with `sequence_length` {size} and `add_extra_token_to_sequence` off, so"
        " that samples stay on the borders of blocks. Made by Spanloom.",
        files="Each shard of a split is two Megatron IndexedDatasets of equal shape, `shard_NN_tokens` (int32) and"
        " `shard_NN_lossmask` (uint8, 1 = trained), and `shard_NN_rows.parquet` with the counts of each block:"
        " labels that are context and assistant, tokens that are copies or padding, conversations that end in it.",
        making=(
            f"tokenizer: {code(content.tokenizer.name)}, sha256 `{content.tokenizer.sha256}`",
            f"markers: {markers}",
            f"packed from {packing['tokens_in']:,} tokens; {packing['injected_tokens']:,} copied in where a user span"
            f" was cut, {packing['tokens_given_up']:,} given up after user spans longer than a block,"
            f" {packing['tail_tokens']:,} in the last, shorter blocks left out; {packing['lossless_blocks']:,} blocks"
            f" carry no loss{'' if config['keep_lossless'] else ' and were dropped'}",
        ),
        summary=result,
        result=result,
        facts={"config": config},
        provenance={"markers": ", ".join(f"{marker['text']} {marker['id']}" for marker in config["markers"].values())},
        sections=(_packing_section(config, packing),),
        rows_in="stream",
        one_length=True,
    )


def _result(config: dict[str, Any], packing: dict[str, int]) -> dict[str, str]:
    """The packing rules and the token counts, as rows of the card."""
    loss = "on assistant spans" if config["post_training"] else "on every token (post-training is off)"
    tail = f"tail of {packing['tail_tokens']:,} dropped"
    if config["pad_tail"] is not None:
        tail = f"tail padded by {packing['padding_tokens']:,}"
    return {
        "blocks": f"of {config['block_size']:,} tokens; loss {loss}{', strict' if config['strict_user'] else ''}; "
        f"{packing['lossless_blocks']:,} without loss{'' if config['keep_lossless'] else ', dropped'}",
        "stream": f"{packing['tokens_in']:,} tokens in, {packing['injected_tokens']:,} injected, "
        f"{packing['tokens_given_up']:,} given up, {tail}",
    }


def _packing_section(config: dict[str, Any], packing: dict[str, int]) -> family.Section:
    """Where the stream's tokens are; the lines add up to all of them."""
    lost = ("dropped_tokens", "tokens_given_up", "tail_tokens")
    lines = {
        "in blocks": packing["tokens_in"] - sum(packing[name] for name in lost),
        "in blocks without loss, dropped": packing["dropped_tokens"],
        "given up by the stop rule": packing["tokens_given_up"],
        "in the last, shorter block of each shard, dropped": packing["tail_tokens"],
    }
    loss = "on every token: post-training is off"
    if config["post_training"]:
        strict = ", and none after a user span that was cut" if config["strict_user"] else ""
        loss = f"on the assistant's complete spans alone{strict}"
    stops = packing.get("stops", 0)
    dropped = "" if config["keep_lossless"] else ", which were dropped"
    after = (
        f"{packing['blocks']:,} blocks, {packing['lossless_blocks']:,} without any loss{dropped}; "
        f"the stop rule applied {stops:,} time{'' if stops == 1 else 's'}."
    )
    if packing["injected_tokens"]:
        after += f" {packing['injected_tokens']:,} tokens are copies, where a block begins inside a user span."
    if packing["padding_tokens"]:
        after += f" {packing['padding_tokens']:,} tokens are padding."
    return family.Section(
        title="Packing",
        before=f"Blocks of {config['block_size']:,} tokens; loss {loss}.",
        column="what became of the stream",
        lines=tuple((name, tokens) for name, tokens in lines.items() if tokens),
        whole=packing["tokens_in"],
        after=after,
    )


def export_columns(content: Content) -> Sequence[family.ExportColumn]:
    """No columns: a block has no id."""
    return ()
