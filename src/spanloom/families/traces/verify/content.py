"""Checks options, split, tokenizer and input in the manifest of a token dataset of traces.

In: a manifest's `content`. Out: findings: values that contradict constants of the family, other values, or the counts.
The rules are implemented here again; only constants are shared with the code that writes a manifest.
"""

from collections.abc import Iterator

from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.validate.content import (
    check_documents_by_id,
    check_files,
    check_input,
    check_longest,
    check_rejected,
    check_stated,
    rows_to_read,
    wrong,
)
from spanloom.families.traces.encoding.tokens import INPUT_SCHEMA
from spanloom.findings import Finding

OPTIONS = ("format", "control_tokens", "sort_steps", "system", "protect_metadata")
"""Options that decide the text of a trace: checked against the export if it is given."""


_SPLIT_RULE = "blake2b-64(trace_id) < int(Decimal(valid_fraction) * 2**64)"


def check_content(content: Content) -> Iterator[Finding]:
    """Checks all sections except the counts."""
    config = content.config
    wanted = {
        **{name: config[name] for name in OPTIONS},
        "eod": {"text": config["eod"]["text"], "id": content.tokenizer.eod},
        **({"weight": str(config["weight"])} if "weight" in config else {}),
        **({"max_rows": int(config["max_rows"])} if "max_rows" in config else {}),
        **({"longest": int(config["longest"])} if "longest" in config else {}),
    }
    yield from check_documents_by_id(content, wanted, _SPLIT_RULE, documents="documents of one trace", rendered=False)
    yield from check_files(content, {TOKENIZER_NAME: content.tokenizer.sha256})
    # The input is one export, and each of its lines is one document.
    yield from check_input(content, INPUT_SCHEMA, without=["license"])
    export = content.input
    name = f"{export.dataset}.{content.config['format']}.jsonl"
    yield from check_stated([shard.path for shard in export.shards], [name], "input.shards")
    rows, totals = rows_to_read(content, sum(shard.rows for shard in export.shards)), content.totals
    yield from check_longest(content, config.get("longest"))
    if (
        rows != totals.sequences + totals.rejected.get("too_long", 0)
        or rows_to_read(content, totals.rows_read) != totals.rows_read
    ):
        yield wrong(f"{totals.sequences} documents of {totals.rows_read} traces; by the export and max_rows: {rows}")


def check_sums(content: Content, shard: ShardEntry) -> Iterator[Finding]:  # noqa: ARG001  # as all families
    """Checks that each trace of the dataset is one document, or was deleted."""
    written = sum(counts.sequences for counts in shard.splits.values())
    yield from check_rejected(shard, written=written, reasons={"deleted", "too_long"}.__contains__, listed=None)
