"""Checks the manifest of a tool-call token dataset: options, split, template, tools and input.

In: a manifest's `content`; the files in the dataset root. Out: findings for values that differ from the constants of
the family, or contradict other values, counts or files. The rules are implemented independently of the code that writes
manifests; only its constants are shared.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.root.layout import TOKENIZER_NAME
from spanloom.dataset.validate.content import check_documents_by_id, check_stated, wrong
from spanloom.families.toolcalls.format.tables import HARMFUL
from spanloom.families.toolcalls.recipe import (
    INPUT_SCHEMA,
    NO_ID,
    REGISTRIES_NAME,
    TEMPLATE_NAME,
)
from spanloom.families.toolcalls.tokens import masks
from spanloom.findings import Finding
from spanloom.provenance import sha256_json

REASONS = {masks.NOT_RENDERED, masks.NO_SAMPLE, masks.NO_SPAN, masks.NO_TOKENS, masks.CUT, masks.NOT_AS_TEXT, NO_ID}
"""The reasons for which samples are left out."""

NOT_CHECKABLE = {
    "content.config.special_tokens.eos_token": "a special token that the template never prints leaves no trace; one"
    " that it prints is in the samples that --source --deep renders again",
    "content.input.shards[0].path": "a file may be renamed; its bytes and its samples are checked",
}
"""Values in a manifest of this family that validation cannot check, and why, in addition to those of all families."""

_SPLIT_RULE = "blake2b-64(sample_id) < int(Decimal(valid_fraction) * 2**64)"
_OPTIONS = ("split", "special_tokens", "max_length", "template_sha256", "registries_sha256")


def check_content(content: Content) -> Iterator[Finding]:
    """Checks all sections except the counts."""
    split, config = content.split, content.config
    assert split is not None, "the schema demands it of this family"
    wanted = {
        **{name: config[name] for name in _OPTIONS},
        "harmful": config["split"] == HARMFUL,
        "eod": {"text": config["eod"]["text"], "id": content.tokenizer.eod},
        "valid_fraction": split.valid_fraction,
        **({"spans": "parts"} if "span" in content.arrays else {}),
        **{name: config[name] for name in ("control_texts",) if name in config},
    }
    yield from check_stated(config, wanted, "config")
    yield from check_documents_by_id(content, _SPLIT_RULE, documents="documents of one sample", repeated_rows=0)
    if content.renderer is not None:
        yield wrong("a renderer is given, but samples are rendered with the dataset's own template")
    carried = [TOKENIZER_NAME, TEMPLATE_NAME, REGISTRIES_NAME]
    yield from check_stated([file.path for file in content.files], carried, "files")
    for file in content.files:
        if file.path == TOKENIZER_NAME and file.sha256 != content.tokenizer.sha256:
            yield wrong(f"tokenizer.sha256 is {content.tokenizer.sha256}, files says {file.sha256}")
    yield from _check_input(content)


def _check_input(content: Content) -> Iterator[Finding]:
    """Checks that the input is one file with at least as many samples as rows were read."""
    recorded = content.input
    if recorded.schema_version != INPUT_SCHEMA:
        yield wrong(f"input.schema_version is {recorded.schema_version!r}, not {INPUT_SCHEMA!r}")
    for name in ("manifest_sha256", "dataset", "license"):
        if getattr(recorded, name) is not None:
            yield wrong(f"input.{name} is given, but files of samples have none")
    if len(recorded.shards) != 1 or len(content.shards) != 1:
        yield wrong(f"{len(recorded.shards)} input files and {len(content.shards)} shards, not one of each")
    if (rows := sum(shard.rows for shard in recorded.shards)) < content.totals.rows_read:
        yield wrong(f"the input has {rows} samples, but {content.totals.rows_read} were read")


def check_sums(content: Content, shard: ShardEntry) -> Iterator[Finding]:  # noqa: ARG001  # as all families
    """Checks the counts: each sample of the split is one document, or was left out for a known reason."""
    in_shard = partial(wrong, shard=shard.shard)
    written, left_out = sum(counts.sequences for counts in shard.splits.values()), sum(shard.rejected.values())
    if written + left_out != shard.rows_read:
        yield in_shard(f"{shard.rows_read} samples, but {written} written and {left_out} left out")
    unknown = [reason for reason in shard.rejected if reason not in REASONS and not reason.startswith(masks.CONTROL)]
    if unknown or 0 in shard.rejected.values():
        yield in_shard(f"rejected is {shard.rejected}; the known reasons are {', '.join(sorted(REASONS))}")
    if shard.rejects_file is not None:
        yield in_shard("there is a rejects file, but datasets of samples have none")


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
