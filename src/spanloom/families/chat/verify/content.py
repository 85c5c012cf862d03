"""Checks of a packed chat manifest: options, markers, tokenizer, input and packing.

In: a manifest's `content`; the tokenizer if available. Out: findings for values that are not the family's constants, do
not follow from others, or contradict the counts. The rules are computed independently here.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.rows.places import rows_of_file
from spanloom.dataset.validate.content import check_input, check_rejected, check_stated, rows_to_read, wrong
from spanloom.families.chat.blocks.markers import MARKER_NAMES
from spanloom.families.chat.defaults import RECORDS
from spanloom.families.chat.root.blocks import ARRAY_DTYPES, INPUT_SCHEMA
from spanloom.families.chat.tokenizer import O200K_FIRST_ADDED, O200K_NAME, ChatTokenizer
from spanloom.families.chat.transcripts.files import is_line_based
from spanloom.findings import Finding
from spanloom.supervision import ALIGNMENT
from spanloom.tokenizers.o200k.asset import ASSET_SHA256

OPTIONS = ("block_size", "post_training", "strict_user", "keep_lossless", "records")
"""Options against which the blocks themselves are checked: any value that the schema allows is valid."""


def check_content(content: Content) -> Iterator[Finding]:
    """Checks all sections except the counts."""
    config, markers = content.config, content.config["markers"]
    ids = [marker["id"] for marker in markers.values()]
    wanted = {
        "input_schema": INPUT_SCHEMA,
        "shards": len(content.shards),
        **{name: config[name] for name in (*OPTIONS, "max_rows") if name in config},
        "pad_tail": None if config["pad_tail"] is None else markers.get("pad", {}).get("id"),
        "markers": {
            name: {"text": MARKER_NAMES[name], "id": marker["id"]}
            for name, marker in markers.items()
            if name in MARKER_NAMES
        },
        "tokenizer_sha256": content.tokenizer.sha256,
        "alignment": ALIGNMENT,
        "arrays": ARRAY_DTYPES,
    }
    yield from check_stated(config, wanted, "config")
    if len(set(ids)) != len(ids) or max(ids) >= content.tokenizer.vocab_size:
        yield wrong(f"the ids of the markers are {ids}: not all different and below {content.tokenizer.vocab_size}")
    if config.get("records", RECORDS) != RECORDS and not any(is_line_based(Path(f.path)) for f in content.input.shards):
        yield wrong(f"config.records is {config['records']!r}, which is for .txt files, and the input has none")
    if content.tokenizer.eod != markers["eos"]["id"]:
        yield wrong(f"tokenizer.eod is {content.tokenizer.eod}, the marker EOS is {markers['eos']['id']}")
    if content.tokenizer.name == O200K_NAME:
        added = {name: O200K_FIRST_ADDED + number for number, name in enumerate(MARKER_NAMES)}
        last = O200K_FIRST_ADDED + len(MARKER_NAMES)
        entry = {"name": O200K_NAME, "sha256": ASSET_SHA256, "vocab_size": last, "eod": added["eos"]}
        yield from check_stated(content.tokenizer.model_dump(), entry, "tokenizer")
        yield from check_stated({name: marker["id"] for name, marker in markers.items()}, added, "config.markers")
    if content.renderer is not None:
        yield wrong("unexpected section renderer: transcripts are packed as they are")
    yield from _check_input(content)


def _check_input(content: Content) -> Iterator[Finding]:
    """Record number i of the stream is of shard number i mod T."""
    yield from check_input(content, INPUT_SCHEMA, without=["manifest_sha256", "dataset", "license"])
    records = sum(shard.rows for shard in content.input.shards)
    if rows_to_read(content, records) != records:
        yield wrong(f"{records} rows of the input were read, and max_rows is {content.config['max_rows']}")
    for shard in content.shards:
        if shard.rows_read != (dealt := len(rows_of_file(content, shard, records))):
            message = f"{shard.rows_read} rows read, {dealt} of the {records} rows of the input are of this shard"
            yield wrong(message, shard.shard)


def check_packing(content: Content, shard: ShardEntry, packing: dict[str, int]) -> Iterator[Finding]:
    """Checks the packing counts of one shard against each other."""
    config, in_shard = content.config, partial(wrong, shard=shard.shard)
    size = config["block_size"]
    dropped = 0 if config["keep_lossless"] else packing["lossless_blocks"]
    if packing.get("dropped_blocks", dropped) != dropped:
        yield in_shard(f"dropped_blocks is {packing['dropped_blocks']}, by the blocks without loss it is {dropped}")
    if not dropped <= packing["dropped_tokens"] <= dropped * size:
        yield in_shard(f"dropped_tokens is {packing['dropped_tokens']}, and {dropped} blocks of {size} were dropped")
    stops, given_up = packing.get("stops", packing["tokens_given_up"]), packing["tokens_given_up"]
    if (given_up and not stops) or stops > (packing["blocks"] + dropped if config["post_training"] else 0):
        yield in_shard(f"stops is {stops}, with {given_up} tokens given up and {packing['blocks']} blocks")
    if packing["tail_tokens"] >= (size if config["pad_tail"] is None else 1):
        yield in_shard(f"tail_tokens is {packing['tail_tokens']}: it is a block, or was to be padded")
    yield from check_rejected(shard, reasons=lambda reason: reason == "unreadable", listed=None)
    if sum(shard.rejected.values()) > shard.rows_read:
        yield in_shard(f"rejected is {shard.rejected} of {shard.rows_read} rows")


def check_tokenizer(content: Content, loaded: ChatTokenizer) -> Iterator[Finding]:
    """Checks the tokenizer against its section of the manifest."""
    markers = loaded.markers
    entry = {"name": loaded.name, "sha256": loaded.sha256, "vocab_size": loaded.vocab_size, "eod": markers.eos}
    yield from check_stated(content.tokenizer.model_dump(), entry, "tokenizer", check="tokenizer")
    ids = {name: token for name in content.config["markers"] if (token := getattr(markers, name, None)) is not None}
    stated = {name: marker["id"] for name, marker in content.config["markers"].items()}
    yield from check_stated(stated, ids, "config.markers", check="tokenizer")
