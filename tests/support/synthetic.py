"""A dataset of any size, right in every byte, written with numpy in seconds: no conversation was ever rendered for it.

In: a number of documents. Out: a root with files, rows and manifest that validation finds nothing wrong with.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.config import dataset_config, rule_of_split
from spanloom.families.harmony.contract.profile import SYNTH_KD
from spanloom.provenance import sha256_json
from spanloom.split import id_digests, is_valid, valid_threshold
from support.sources import shard_name
from support.token_datasets import SPAN_NAMES, write_manifest, write_shard

START, END, RETURN, MESSAGE, CHANNEL, EOD = 200006, 200007, 200002, 200008, 200005, 199999
USER, ASSISTANT, ANALYSIS, FINAL = 1428, 173781, 35644, 17196
LANGUAGES = ("en", "fr", "de", "es", "it", "pl", None)
FRACTION = 0.1
BODY = 3

# One document is one row of a matrix whose cells are taken or left out: bodies have 1 … BODY tokens.
#                      user message               analysis                              final
HEADS = (
    [START, USER, MESSAGE],
    [START, ASSISTANT, CHANNEL, ANALYSIS, MESSAGE],
    [START, ASSISTANT, CHANNEL, FINAL, MESSAGE],
)
CLOSERS = (END, END, RETURN)


def documents(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`(lengths int32 [N], tokens int32 [T], token-aligned span uint8 [T])`."""
    random = np.random.default_rng(seed)
    columns: list[np.ndarray] = []
    taken: list[np.ndarray] = []
    spans: list[int] = []
    for span, (head, closer) in enumerate(zip(HEADS, CLOSERS, strict=True)):
        sizes = random.integers(1, BODY + 1, count)
        for token in head:
            columns.append(np.full(count, token))
            taken.append(np.ones(count, dtype=bool))
        for at in range(BODY):
            columns.append(random.integers(300, 190_000, count))
            taken.append(at < sizes)
        columns.append(np.full(count, closer))
        taken.append(np.ones(count, dtype=bool))
        spans += [span] * (len(head) + BODY + 1)
    columns.append(np.full(count, EOD))
    taken.append(np.ones(count, dtype=bool))
    spans.append(0)
    keep = np.stack(taken, axis=1)
    tokens = np.stack(columns, axis=1)[keep].astype(np.int32)
    span = np.broadcast_to(np.array(spans, dtype=np.uint8), keep.shape)[keep]
    return keep.sum(axis=1).astype(np.int32), tokens, span


def write_dataset(root: Path, count: int, *, shards: int = 2, exercises: int = 1000) -> Path:
    """Writes about `count` documents over the shards, split by the rule. Returns the root."""
    rows = count // shards
    held_out = sum(_write_shard(root, shard, rows, exercises) for shard in range(shards))
    config = dataset_config(SYNTH_KD, shards=shards, caps=Caps(), valid_fraction=FRACTION, rules=None)
    source = {"rows": rows, "bytes": 1, "sha256": "0" * 64}  # of files that were never there
    write_manifest(
        root,
        shards,
        limits=(2048, 4096, 8192, 16384),
        config=config,
        config_sha256=sha256_json(config),
        tokenizer={"name": "o200k_harmony", "sha256": config["tokenizer_sha256"], "vocab_size": 201088, "eod": EOD},
        input={
            "schema_version": "synth_harmony_v1",
            "manifest_sha256": "0" * 64,
            "shards": [{"path": shard_name(shard), **source} for shard in range(shards)],
        },
        split={
            "rule": rule_of_split(SYNTH_KD),
            "valid_fraction": FRACTION,
            "threshold": str(valid_threshold(FRACTION)),
            "realised_valid_fraction": held_out / (rows * shards),
            "repeated_rows": 0,
        },
        renderer={"name": "fast", "version": "openai-harmony 0, fastokens 0", "fallback_rows": 0, "audited_rows": 0},
    )
    return root


def _write_shard(root: Path, shard: int, count: int, exercises: int) -> int:
    """Returns how many documents are held out."""
    lengths, tokens, span = documents(count, seed=shard)
    ids = [f"doc-{shard}-{row}" for row in range(count)]
    valid = is_valid(id_digests(ids), FRACTION)
    ends = np.cumsum(lengths, dtype=np.int64)
    labels = np.append(span[1:], np.uint8(0))
    labels[ends - 1] = 0
    document = np.repeat(np.arange(count), lengths)
    for name, chosen in (("train", ~valid), ("valid", valid)):
        at = chosen[document]
        arrays = {"tokens": tokens[at], "lossmask": (labels[at] > 0).astype(np.uint8), "span": labels[at]}
        rows, sizes = np.flatnonzero(chosen), lengths[chosen]
        write_shard(root, name, shard, sizes, arrays)
        firsts = np.cumsum(sizes, dtype=np.int64) - sizes
        counts = [np.add.reduceat(arrays["span"] == span, firsts, dtype=np.int64) for span in range(3)]
        table = pa.table(
            {
                "sequence": np.arange(rows.size),
                "row": rows,
                "synth_id": [ids[row] for row in rows.tolist()],
                "language": [LANGUAGES[row % len(LANGUAGES)] for row in rows.tolist()],
                "exercise": [f"exercise {row % exercises}" for row in rows.tolist()],
                "tokens": sizes.astype(np.int64),
                **{f"{span}_tokens": column for span, column in zip(SPAN_NAMES, counts, strict=True)},
            }
        )
        pq.write_table(
            table, root / name / f"shard_{shard:02d}_rows.parquet", compression="zstd", row_group_size=1 << 16
        )
    return int(valid.sum())
