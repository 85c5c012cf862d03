"""Checks the manifest of a tool-call token dataset: options, split, template, tools and input.

In: a manifest's `content`; the files in the dataset root. Out: findings for values that differ from the constants of
the family, or contradict other values, counts or files. The rules are implemented independently of the code that writes
manifests; only its constants are shared.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.rows.places import rows_of_file
from spanloom.dataset.validate.content import (
    check_documents_by_id,
    check_files,
    check_input,
    check_longest,
    check_rejected,
    rows_to_read,
    wrong,
)
from spanloom.families.toolcalls.format.tables import HARMFUL
from spanloom.families.toolcalls.recipe import INPUT_SCHEMA, NO_ID, REGISTRIES_NAME, TEMPLATE_NAME
from spanloom.families.toolcalls.tokens import masks
from spanloom.findings import Finding
from spanloom.provenance import sha256_json

REASONS = {
    masks.NOT_RENDERED,
    masks.NO_SAMPLE,
    masks.NO_SPAN,
    masks.NO_TOKENS,
    masks.CUT,
    masks.NOT_AS_TEXT,
    NO_ID,
    "too_long",
}
"""The reasons for which samples are left out."""


_SPLIT_RULE = "blake2b-64(sample_id) < int(Decimal(valid_fraction) * 2**64)"
OPTIONAL = ("control_texts", "max_rows", "longest")
_OPTIONS = ("split", "special_tokens", "max_length", "template_sha256", "registries_sha256")


def check_content(content: Content) -> Iterator[Finding]:
    """Checks all sections except the counts."""
    config = content.config
    wanted = {
        **{name: config[name] for name in _OPTIONS},
        "harmful": config["split"] == HARMFUL,
        "eod": {"text": config["eod"]["text"], "id": content.tokenizer.eod},
        **({"spans": "parts"} if "span" in content.arrays else {}),
        **{name: config[name] for name in OPTIONAL if name in config},
    }
    documents = "documents of one sample"
    yield from check_documents_by_id(content, wanted, _SPLIT_RULE, documents=documents, rendered=False, repeated_rows=0)
    yield from check_files(
        content, {TOKENIZER_NAME: content.tokenizer.sha256, TEMPLATE_NAME: None, REGISTRIES_NAME: None}
    )
    yield from check_longest(content, config.get("longest"))
    # The input is one file with at least as many samples as rows were read.
    yield from check_input(content, INPUT_SCHEMA, without=["manifest_sha256", "dataset", "license"])
    if len(content.input.shards) != 1:
        yield wrong(f"{len(content.input.shards)} input files, not one")
    for shard in content.shards:
        if shard.rows_read != (dealt := len(rows_of_file(content, shard, content.totals.rows_read))):
            yield wrong(f"{shard.rows_read} rows read, {dealt} of the split are of this shard", shard.shard)
    rows = sum(shard.rows for shard in content.input.shards)
    if (most := rows_to_read(content, rows)) < content.totals.rows_read:
        yield wrong(f"{content.totals.rows_read} samples were read, and by input and max_rows at most {most}")


def check_sums(content: Content, shard: ShardEntry) -> Iterator[Finding]:  # noqa: ARG001  # as all families
    """Checks the counts: each sample of the split is one document, or was left out for a known reason."""
    written = sum(counts.sequences for counts in shard.splits.values())
    yield from check_rejected(
        shard,
        written=written,
        reasons=lambda reason: reason in REASONS or reason.startswith(masks.CONTROL),
        listed=None,
    )


def check_carried(content: Content, root: Path) -> Iterator[Finding]:
    """Checks the template and the tools in the dataset root against their hashes in `config`."""
    for name, key in ((TEMPLATE_NAME, "template_sha256"), (REGISTRIES_NAME, "registries_sha256")):
        if not (root / name).is_file():  # in the report already
            continue
        try:
            data = (root / name).read_bytes()
            digest = sha256_json(data.decode() if name == TEMPLATE_NAME else json.loads(data))
        except (OSError, ValueError, RecursionError) as fault:
            message = f"the file in the dataset cannot be read: {type(fault).__name__}"
            yield Finding(check="carried", message=message, file=name)
            continue
        if digest != content.config[key]:
            message = f"config.{key} is {content.config[key]}, but the file has {digest}"
            yield Finding(check="carried", message=message, file=name)
