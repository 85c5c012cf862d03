"""What the manifest of a Harmony dataset says of options, split, tokenizer, renderer and input.

In: a manifest's `content`. Out: findings: wrong constants of the family, wrong derived values, and contradictions to
the counts. The rules are implemented here again; of the code that writes a manifest only the constants are used.
"""

import re
from collections.abc import Iterator

from spanloom.dataset.manifest import Content
from spanloom.dataset.validate.content import (
    check_caps,
    check_documents_by_id,
    check_files,
    check_input,
    check_stated,
    wrong,
)
from spanloom.families.harmony import tokenizer
from spanloom.families.harmony.contract.config import rule_of_split
from spanloom.families.harmony.contract.profile import ARRAY_DTYPES, Profile, profile_of_family
from spanloom.families.harmony.render.routes import RENDERERS
from spanloom.findings import Finding
from spanloom.supervision import ALIGNMENT
from spanloom.tokenizers.o200k.asset import ASSET_SHA256

CAPS = ("max_rows", "max_rows_per_shard", "max_tokens")


def check_content(content: Content) -> Iterator[Finding]:
    """All sections but the counts."""
    profile = profile_of_family(content.family, content.input.schema_version)
    split_rule = rule_of_split(profile)
    cut_options = (
        ("history", "train", "turns", "merge", "call_format", "mask_generation_prompt") if profile.cuts else ()
    )
    wanted = {
        "input_schema": profile.source.schema_version,
        "shards": len(content.shards),
        "caps": content.config.get("caps"),
        "split_rule": split_rule,
        "tokenizer_sha256": ASSET_SHA256,
        "eod": tokenizer.EOD,
        "alignment": ALIGNMENT,
        "arrays": ARRAY_DTYPES,
        # What documents show and train is checked in the documents; the schema says which values there are.
        **{name: content.config[name] for name in cut_options if name in content.config},
    }
    entry = {"name": tokenizer.NAME, "sha256": ASSET_SHA256, "vocab_size": tokenizer.VOCAB_SIZE, "eod": tokenizer.EOD}
    yield from check_stated(content.tokenizer.model_dump(), entry, "tokenizer")
    documents = "documents of one conversation"
    yield from check_documents_by_id(content, wanted, split_rule, documents=documents, rendered=True)
    if not profile.cuts and (
        content.totals.cutting is not None or any(each.cutting is not None for each in content.shards)
    ):
        yield wrong("unexpected section cutting: rows of this family are not cut")
    if profile.cuts and content.config["train"] != [
        name for name in profile.span_names if name in content.config["train"]
    ]:
        yield wrong(f"config.train is {content.config['train']}, not in the order of the spans")
    yield from _check_renderer(content)
    yield from _check_input(content, profile)
    yield from check_caps(content, CAPS)
    yield from check_files(content, {})


def _check_renderer(content: Content) -> Iterator[Finding]:
    renderer = content.renderer
    assert renderer is not None, "the schema demands it of this family"
    packages = RENDERERS.get(renderer.name)
    if packages is None:
        yield wrong(f"renderer.name is {renderer.name!r}, not one of {', '.join(RENDERERS)}")
        return
    if not re.fullmatch(", ".join(rf"{re.escape(package)} [0-9]\S*" for package in packages), renderer.version):
        yield wrong(f"renderer.version is {renderer.version!r}, not {' and '.join(packages)} with their versions")
    cutting = content.totals.cutting
    written = content.totals.sequences if cutting is None else cutting["runs"]
    refused = sum(content.totals.rejected.get(reason, 0) for reason in ("renderer_refused", "too_long"))
    rendered = written + refused
    caps = content.config.get("caps")
    if cutting is not None and refused:
        return  # how many documents a conversation would have become that was refused, nothing tells
    if isinstance(caps, dict) and caps.get("max_tokens") is not None:
        # A batch is rendered before it is known which of its rows the tokens suffice for.
        if cutting is not None:
            return
        rendered = sum(shard.rows for shard in content.input.shards)
    most = {"fallback_rows": rendered, "audited_rows": rendered} if renderer.name == "fast" else {}
    for name in ("fallback_rows", "audited_rows"):
        if (count := getattr(renderer, name)) > most.get(name, 0):
            yield wrong(f"renderer.{name} is {count}, but only {most.get(name, 0)} rows were rendered")


def _check_input(content: Content, profile: Profile) -> Iterator[Finding]:
    yield from check_input(content, profile.source.schema_version)
    names = [shard.path for shard in content.input.shards]
    yield from check_stated(names, [profile.source.shard_name(shard.shard) for shard in content.shards], "input.shards")
