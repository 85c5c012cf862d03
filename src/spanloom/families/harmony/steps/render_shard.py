"""Step 2, once per shard: conversations → tokens with spans.

In: one Parquet shard of the source, the tokenizer asset. Out: at a work place, the rendered shard (tokens, loss mask,
span) and its ids; its manifest. The shard is cut into parts that depend on the file alone; worker processes render
them, and results come back in order.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanloom.building.parts.packs import pack_bytes
from spanloom.building.parts.work import ShardWork, check_one_number, default_work, has_manifest
from spanloom.building.shards.files import Running
from spanloom.building.shards.making import ShardJob
from spanloom.building.steps import publish_parts
from spanloom.conversations.source.folder import Source, open_source
from spanloom.conversations.source.places import staged_listing, staged_source
from spanloom.conversations.source.rejects import reject_limit, too_many_rejects
from spanloom.errors import SpanloomError
from spanloom.families.harmony import defaults
from spanloom.families.harmony.contract.caps import Caps
from spanloom.families.harmony.contract.history import CutRules, rules_for
from spanloom.families.harmony.contract.profile import profile_of_source
from spanloom.families.harmony.recipe import HarmonyRecipe, recipe_of
from spanloom.families.harmony.render.routes import LIBRARIES, loading_ahead, renderer_version, worker_bytes
from spanloom.machine import workers_that_fit
from spanloom.provenance import part_identity
from spanloom.report.progress import Progress
from spanloom.storage.scratch import Scratch, scratch_for
from spanloom.tokenizers.o200k.asset import ASSET_SHA256, locate_asset
from spanloom.tokenizers.o200k.staging import staged_asset


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """How a shard is rendered.

    shards           their number in the source; None for what its manifest says
    workers          processes; None for as many as fit
    rules            how conversations are cut, if the profile cuts them
    audit_fraction   the share of fast renders that is compared with openai-harmony
    caps             those of the whole run, of which a shard gets its share
    max_rejects      a number, or a share of the shard such as `0.1%`
    resume           existing packs with the right hash are kept
    """

    shards: int | None = None
    workers: int | None = None
    rules: CutRules | None = None
    renderer: str = defaults.RENDERER
    audit_fraction: float = defaults.AUDIT_FRACTION
    caps: Caps = field(default_factory=Caps)
    max_rejects: str = defaults.MAX_REJECTS
    resume: bool = True

    def recipe(self, source: Source, asset: Path) -> HarmonyRecipe:
        return recipe_of(
            source,
            asset=asset,
            renderer=self.renderer,
            rules=rules_for(profile_of_source(source.format), self.rules),
            audit_fraction=self.audit_fraction,
            caps=self.caps,
            given={},
        )

    def job(self, source: Source, shard: int, parts: Path) -> ShardJob:
        """What is made of a shard of this source, with its share of the caps of the whole run."""
        this, share = source.shards[shard], self.caps.share(shard, len(source.shards))
        rows = this.rows if share.rows is None else min(this.rows, share.rows)
        return ShardJob(
            shard=this,
            rows=rows,
            rendered=parts,
            ids=parts,
            reject_limit=reject_limit(self.max_rejects, rows),
            token_budget=share.tokens,
        )

    def identity(self, listing: Source, shards: int) -> dict[str, Any]:
        """What decides the bytes of the parts, with all their sources and libraries."""
        cut = rules_for(profile_of_source(listing.format), self.rules)
        return part_identity(
            "harmony",
            *LIBRARIES,
            manifest_sha256=listing.manifest_sha256,
            shards=shards,
            tokenizer_sha256=ASSET_SHA256,
            renderer=renderer_version(self.renderer),
            audit_fraction=self.audit_fraction,
            caps=self.caps.as_dict(),
            rules=cut and cut.as_dict(),
        )


def run(
    *,
    source: str,
    shard: int,
    rendered: str,
    progress: Progress,
    rendering: Rendering,
    work: str | None = None,
    root: str | None = None,
    tokenizer: str | None = None,
    scratch: Path | None = None,
) -> dict[str, Any]:
    """The step over paths or URIs; only the source's manifest and this shard are read. The shard is published below
    `work`, or `ROOT.work`, under the hash of source and options; its manifest is written to `rendered`.

    A finished shard is kept, and the packs of a killed run are continued. Raises ConflictError, before any shard is
    staged, if `rendered` has the manifest of another shard, or if the work place belongs to a source with another
    number of shards; SourceError (file or column), TokenizerError, RejectedRowError (more rejected rows than allowed),
    AuditError (a fast render differs), WorkerError.
    """
    if not (work or root):
        raise SpanloomError("there is no place for the rendered shard", remedy="give --work, or --root of the dataset")
    if root:
        rendering.caps.check_root(root)
    with scratch_for("render-shard", [source, shard, work or default_work(root or ""), rendered], scratch) as staging:
        listing = staged_listing(staging, source)
        number = rendering.shards or listing.format.shards or len(listing.shards)
        identity = rendering.identity(listing, number)
        size = listing.shards[shard].bytes if shard < len(listing.shards) else 0  # opening the source raises for it
        place, form = work or default_work(root or ""), profile_of_source(listing.format).form
        check_one_number(place, number)
        with ShardWork(staging, place, identity, shard, form, limit=pack_bytes(size)) as published:
            known = has_manifest(staging, rendered, published.identity)
            whole = published.finished() if rendering.resume else None
            if whole is None or too_many_rejects(whole, rendering.max_rejects):
                whole = _publish_shard(staging, published, progress, source, shard, tokenizer, rendering)
            if not known:
                places = {"source": source, "tokenizer": tokenizer or str(locate_asset(None))}
                staging.create(rendered, published.rendered(whole, places).as_json())
    return {**whole, "place": published.place, "identity": published.identity}


def _publish_shard(
    scratch: Scratch,
    published: ShardWork,
    progress: Progress,
    source: str,
    shard: int,
    tokenizer: str | None,
    rendering: Rendering,
) -> dict[str, Any]:
    """Renders a shard and publishes it. Returns its `rendered.json` without the lists of packs and files."""
    local_source = staged_source(scratch, source, only=shard)
    asset = locate_asset(staged_asset(scratch, tokenizer))
    opened = open_source(local_source, shards=rendering.shards, only=shard)
    recipe, job = rendering.recipe(opened, asset), rendering.job(opened, shard, published.parts)
    workers = rendering.workers or workers_that_fit(worker_bytes(recipe.profile))
    ahead = loading_ahead(rendering.renderer, asset, job.rows)
    running = Running(verb="render", workers=workers, pooled=True, ahead=ahead)
    return publish_parts(published, recipe, job, len(opened.shards), running, progress, resume=rendering.resume)


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
