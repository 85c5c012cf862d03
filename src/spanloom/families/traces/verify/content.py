"""Checks options, split, tokenizer and input in the manifest of a token dataset of traces.

In: a manifest's `content`. Out: findings: values that contradict constants of the family, other values, or the counts.
The rules are implemented here again; only constants are shared with the code that writes a manifest.
"""

from collections.abc import Iterator
from functools import partial

from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.validate.content import check_documents_by_id, check_stated, wrong
from spanloom.families.traces.encoding.tokens import INPUT_SCHEMA
from spanloom.findings import Finding

OPTIONS = ("format", "control_tokens", "sort_steps", "system", "protect_metadata")
"""Options that decide the text of a trace: checked against the export if it is given."""

NOT_CHECKABLE = {
    "content.config.control_tokens": "content without control strings is the same whatever was to be done with them",
    "content.config.sort_steps": "text in sorted order can have been in that order before",
    "content.config.protect_metadata": "decides metadata of the export alone, no token",
    "content.input.dataset": "an export does not say which dataset it is of; the name of its file is compared",
    "content.input.manifest_sha256": "an export does not say which dataset it is of",
}
"""Paths in a manifest of this family that validation cannot check, and why, besides those of every family."""

_SPLIT_RULE = "blake2b-64(trace_id) < int(Decimal(valid_fraction) * 2**64)"


def check_content(content: Content) -> Iterator[Finding]:
    """Checks all sections except the counts."""
    split, config = content.split, content.config
    assert split is not None, "the schema demands it of this family"
    eod = config["eod"]
    wanted = {
        **{name: config[name] for name in OPTIONS},
        "eod": {"text": eod["text"], "id": content.tokenizer.eod},
        "valid_fraction": split.valid_fraction,
        **({"weight": str(config["weight"])} if "weight" in config else {}),
    }
    yield from check_stated(config, wanted, "config")
    yield from check_documents_by_id(content, _SPLIT_RULE, documents="documents of one trace")
    if content.renderer is not None:
        yield wrong("a renderer is given, and traces are rendered by their format alone")
    listed = [file.model_dump() for file in content.files]
    carried = [{"path": TOKENIZER_NAME, "bytes": file["bytes"], "sha256": content.tokenizer.sha256} for file in listed]
    yield from check_stated(listed, carried[:1], "files")
    if not listed:
        yield wrong(f"files does not list {TOKENIZER_NAME}")
    yield from _check_input(content)


def _check_input(content: Content) -> Iterator[Finding]:
    """Checks that the input is one export and each of its lines is one document."""
    export = content.input
    if export.schema_version != INPUT_SCHEMA:
        yield wrong(f"input.schema_version is {export.schema_version!r}, not {INPUT_SCHEMA!r}")
    if export.license is not None:
        yield wrong("input.license is there, and a dataset of traces has none")
    name = f"{export.dataset}.{content.config['format']}.jsonl"
    yield from check_stated([shard.path for shard in export.shards], [name], "input.shards")
    if (rows := sum(shard.rows for shard in export.shards)) != content.totals.sequences:
        yield wrong(f"the export has {rows} rows, and {content.totals.sequences} documents were made of it")


def check_sums(content: Content, shard: ShardEntry) -> Iterator[Finding]:  # noqa: ARG001  # as all families
    """Checks that each trace of the dataset is one document, or was deleted."""
    in_shard = partial(wrong, shard=shard.shard)
    written, gone = sum(counts.sequences for counts in shard.splits.values()), sum(shard.rejected.values())
    if written + gone != shard.rows_read:
        yield in_shard(f"{shard.rows_read} traces in the dataset, but {written} written and {gone} deleted")
    if set(shard.rejected) - {"deleted"} or 0 in shard.rejected.values():
        yield in_shard(f"rejected is {shard.rejected}, and traces are missing only where they were deleted")
    if shard.rejects_file is not None:
        yield in_shard("there is a rejects file, and of traces that were deleted there is nothing to write down")
