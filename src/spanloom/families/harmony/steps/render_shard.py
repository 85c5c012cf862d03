"""Step 2, once per shard: conversations → tokens with spans.

In: one Parquet shard of the source, the tokenizer asset. Out: the rendered shard (tokens, loss mask, span) and its ids.
The shard is cut into parts that depend on the file alone; worker processes render them, and results come back in order.
As a pipeline step it publishes the parts at a work place and returns a manifest.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from spanloom.building.parts.packs import pack_bytes
from spanloom.building.parts.work import ShardWork, check_one_number, default_work, has_manifest
from spanloom.building.shards.files import Running
from spanloom.building.shards.making import ShardJob, make_shards, write_record
from spanloom.building.steps import publish_parts
from spanloom.conversations.source.folder import Source, open_source
from spanloom.conversations.source.places import staged_listing, staged_source
from spanloom.conversations.source.rejects import reject_limit, too_many_rejects
from spanloom.errors import SpanloomError
from spanloom.families.harmony import defaults
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.history import CutRules, rules_for
from spanloom.families.harmony.contract.profile import profile_of_source
from spanloom.families.harmony.recipe import recipe_of
from spanloom.families.harmony.render.routes import LIBRARIES, loading_ahead, renderer_version, worker_bytes
from spanloom.machine import workers_that_fit
from spanloom.provenance import part_identity
from spanloom.report.progress import Progress
from spanloom.storage.scratch import Scratch, scratch_for
from spanloom.tokenizers.o200k.asset import ASSET_SHA256, locate_asset, verify_asset
from spanloom.tokenizers.o200k.staging import staged_asset
from spanloom.workers import Pool


def render_shard(
    *,
    source: Path,
    shard: int,
    rendered: Path,
    ids: Path,
    pool: Pool,
    tokenizer: Path | None = None,
    shards: int | None = None,
    rules: CutRules | None = None,
    renderer: str = defaults.RENDERER,
    audit_fraction: float = defaults.AUDIT_FRACTION,
    caps: Caps | None = None,
    max_rejects: str = defaults.MAX_REJECTS,
    resume: bool = True,
    before: Callable[[int], None] | None = None,
    after: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Renders shard number `shard` of the directory `source` into the folders `rendered` and `ids`.

    Only the source's manifest and this shard are read; the manifest gives the profile, and the number of shards if
    `shards` is None. `rules`: how conversations are cut, if the profile cuts them. `caps`: those of the whole run, of
    which this shard gets its share. `max_rejects`: a number, or a share of the shard such as `0.1%`. `audit_fraction`:
    the share of fast renders that is compared with openai-harmony. With `resume`, existing parts with the right hash
    are kept. `before` is called with the number of each part before it goes to a worker; `after` is called with the
    summary of each finished part, in order, and may remove the part's files. Returns the content of `rendered.json`.

    Raises SourceError (file or column), TokenizerError, RejectedRowError (more rejected rows than allowed), AuditError
    (a fast render differs), WorkerError.
    """
    asset = verify_asset(locate_asset(tokenizer))
    opened = open_source(source, shards=shards, only=shard)
    profile, caps = profile_of_source(opened.format), caps or Caps()
    recipe = recipe_of(
        opened,
        asset=asset,
        renderer=renderer,
        rules=rules_for(profile, rules),
        audit_fraction=audit_fraction,
        caps=caps,
        given={"source": str(source), "tokenizer": str(asset)},
    )
    job = shard_job(opened, shard, caps, max_rejects, rendered=rendered, ids=ids)
    ((job, summaries),) = make_shards(recipe, [job], pool, resume=resume, before=before, after=after)
    return write_record(recipe, len(opened.shards), job, summaries)


def shard_job(source: Source, shard: int, caps: Caps, max_rejects: str, *, rendered: Path, ids: Path) -> ShardJob:
    """What is made of a shard of this source, with its share of the caps of the whole run."""
    this, share = source.shards[shard], caps.share(shard, len(source.shards))
    rows = this.rows if share.rows is None else min(this.rows, share.rows)
    return ShardJob(
        shard=this,
        rows=rows,
        rendered=rendered,
        ids=ids,
        reject_limit=reject_limit(max_rejects, rows),
        token_budget=share.tokens,
    )


def run(
    *,
    source: str,
    shard: int,
    rendered: str,
    progress: Progress,
    work: str | None = None,
    root: str | None = None,
    shards: int | None = None,
    tokenizer: str | None = None,
    workers: int | None = None,
    rules: CutRules | None = None,
    renderer: str = defaults.RENDERER,
    audit_fraction: float = defaults.AUDIT_FRACTION,
    caps: Caps | None = None,
    max_rejects: str = defaults.MAX_REJECTS,
    resume: bool = True,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over paths or URIs; only the source's manifest and this shard are read. The shard is published below
    `work`, or `ROOT.work`, under the hash of source and options; its manifest is written to `rendered`.

    With `resume`, a finished shard is kept, and the packs of a killed run are continued. Raises ConflictError, before
    any shard is staged, if `rendered` has the manifest of another shard, or if the work place belongs to a source with
    another number of shards. Other options: see `render_shard`.
    """
    caps = caps or Caps()
    if not (work or root):
        raise SpanloomError("there is no place for the rendered shard", remedy="give --work, or --root of the dataset")
    if root:
        caps.check_root(root)
    with scratch_for("render-shard", [source, shard, work or default_work(root or ""), rendered], scratch) as staging:
        listing = staged_listing(staging, source)
        profile = profile_of_source(listing.format)
        number = shards or listing.format.shards or len(listing.shards)
        identity = part_identity(
            "harmony",
            *LIBRARIES,
            manifest_sha256=listing.manifest_sha256,
            shards=number,
            tokenizer_sha256=ASSET_SHA256,
            renderer=renderer_version(renderer),
            audit_fraction=audit_fraction,
            caps=caps.as_dict(),
            rules=(cut := rules_for(profile, rules)) and cut.as_dict(),
        )
        size = listing.shards[shard].bytes if shard < len(listing.shards) else 0  # opening the source raises for it
        place = work or default_work(root or "")
        check_one_number(place, number)
        with ShardWork(staging, place, identity, shard, profile.form, limit=pack_bytes(size)) as published:
            known = has_manifest(staging, rendered, published.identity)
            whole = published.finished() if resume else None
            if whole is None or too_many_rejects(whole, max_rejects):
                whole = _publish_shard(
                    staging,
                    published,
                    progress,
                    source=source,
                    shard=shard,
                    shards=shards,
                    tokenizer=tokenizer,
                    workers=workers,
                    rules=rules,
                    renderer=renderer,
                    audit_fraction=audit_fraction,
                    caps=caps,
                    max_rejects=max_rejects,
                    resume=resume,
                )
            if not known:
                places = {"source": source, "tokenizer": tokenizer or str(locate_asset(None))}
                staging.create(rendered, published.rendered(whole, places).as_json())
    return {**whole, "place": published.place, "identity": published.identity}


def _publish_shard(
    scratch: Scratch,
    published: ShardWork,
    progress: Progress,
    *,
    source: str,
    shard: int,
    shards: int | None,
    tokenizer: str | None,
    workers: int | None,
    rules: CutRules | None,
    renderer: str,
    audit_fraction: float,
    caps: Caps,
    max_rejects: str,
    resume: bool,
) -> dict[str, Any]:
    """Renders a shard and publishes it. Returns its `rendered.json` without the lists of packs and files."""
    local_source = staged_source(scratch, source, only=shard)
    asset = locate_asset(staged_asset(scratch, tokenizer))
    listed = open_source(local_source, shards=shards, only=shard)
    profile = profile_of_source(listed.format)
    recipe = recipe_of(
        listed,
        asset=asset,
        renderer=renderer,
        rules=rules_for(profile, rules),
        audit_fraction=audit_fraction,
        caps=caps,
        given={},
    )
    job = shard_job(listed, shard, caps, max_rejects, rendered=published.parts, ids=published.parts)
    ahead = loading_ahead(renderer, asset, job.rows)
    running = Running(
        verb="render", workers=workers or workers_that_fit(worker_bytes(profile)), pooled=True, ahead=ahead
    )
    return publish_parts(published, recipe, job, len(listed.shards), running, progress, resume=resume)


def artifact_metadata(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rejected = sum(result["rejected"].values())
    counts = {"rows_read": result["rows_read"], "rows": result["rows"], "rejected": rejected}
    spans = {f"{name}_tokens": count for name, count in result["span_tokens"].items()}
    return {
        "rendered": {
            "shard": result["shard"],
            "work": result["place"],
            "identity": result["identity"],
            **counts,
            "tokens": result["tokens"],
            "input_sha256": result["input"]["sha256"],
            "tokenizer_sha256": result["tokenizer_sha256"],
            "renderer": "{name} {version}".format(**result["renderer"]),
        },
        "metrics": {**counts, "tokens": result["tokens"], **spans, **result["audit"]},
    }
