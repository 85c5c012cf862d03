"""A shard of a Harmony source, rendered into folders of its own by the recipe, without a work place."""

from pathlib import Path
from typing import Any

from spanloom.building.shards.making import ShardJob, make_shards, write_record
from spanloom.conversations.source.folder import open_source
from spanloom.families.harmony.steps.render_shard import Rendering
from spanloom.tokenizers.o200k.asset import locate_asset
from spanloom.workers import Pool


def render_shard(
    source: Path,
    shard: int,
    rendered: Path,
    ids: Path,
    pool: Pool,
    *,
    tokenizer: Path | None = None,
    rendering: Rendering | None = None,
) -> dict[str, Any]:
    """Returns the content of `rendered.json`."""
    rendering = rendering or Rendering()
    opened = open_source(source, shards=rendering.shards, only=shard)
    recipe = rendering.recipe(opened, locate_asset(tokenizer))
    job = rendering.job(opened, shard, rendered)
    job = ShardJob(**{**vars(job), "ids": ids})
    ((job, summaries),) = make_shards(recipe, [job], pool, resume=rendering.resume)
    return write_record(recipe, len(opened.shards), job, summaries)
