"""What stands where a SYNTH KD build is to go: this dataset, another one, an unfinished build, too little disk.

In: the root, the options, what decides the bytes. Out: whether it is the one, a root that is free, or an error.
"""

import shutil
from pathlib import Path
from typing import Any

from spanloom.dataset import manifest
from spanloom.dataset.inventory import first_damage
from spanloom.dataset.layout import REJECTS
from spanloom.dataset.manifest import Content
from spanloom.dataset.root import LOCK_NAME, claim, other_build, unfinished
from spanloom.errors import ConflictError, StorageError
from spanloom.families.harmony.options import BuildOptions
from spanloom.families.harmony.rejects import reject_limit
from spanloom.families.harmony.render import renderer_version
from spanloom.families.harmony.source import Source, text_bytes
from spanloom.provenance import git_sha
from spanloom.report.progress import Progress
from spanloom.report.views import remove_views
from spanloom.split import SPLITS
from spanloom.storage import free_bytes, remove_if_empty

# What a token takes on disk at the worst moment: 4 + 1 + 1 bytes in the .bin files, and the rendered parts (4 bytes
# where lz4 finds nothing to pack, mask and span next to nothing), which are cleared only at the end. Conversations
# have 3.6 (much code and numbers) to 5.6 bytes of JSON a token (real SYNTH): 3.5 errs on the safe side.
BYTES_PER_TOKEN = 6 + 4.5
TEXT_BYTES_PER_TOKEN = 3.5
BYTES_PER_ROW = 200


def differs(root: Path, content: Content, identity: dict[str, Any], options: BuildOptions) -> str | None:
    """Why the dataset at `root` is not the one that is asked for, or None when it is and its files stand."""
    if content.renderer is None or content.split is None:
        return f"it is of the family {content.family}"
    if (
        content.config != identity["config"]
        or content.input.manifest_sha256 != identity["manifest_sha256"]
        or content.renderer.name != identity["renderer"]
    ):
        return "it was built with other options or from another source"
    if content.git_sha != git_sha() or content.renderer.version != renderer_version(options.renderer):
        return f"it was built by other code ({content.git_sha}, {content.renderer.version})"
    if content.split.repeated_rows and options.on_duplicate == "error":
        return "ids stand twice in it, which --on-duplicate error does not allow"
    for shard in content.shards:
        if sum(shard.rejected.values()) > reject_limit(options.max_rejects, shard.rows_read):
            return "rows were rejected for it, more than --max-rejects allows"
    damage = first_damage(root, content)
    return None if damage is None else f"it is this one, but damaged: {damage}"


def aside_of(root: Path) -> Path:
    return root.with_name(root.name + ".replaced")


def set_aside(root: Path, work: Path) -> None:
    """Moves a finished dataset out of the way, so that a failing build does not cost it. The locked folder stays."""
    manifest.read(root)  # a manifest.json of something else is not ours to move
    aside = aside_of(root)
    if aside.exists():
        raise ConflictError(
            "a dataset that an earlier --overwrite set aside is still there",
            where=str(aside),
            remedy=f"move it back to {root.name}, or remove it",
        )
    aside.mkdir()
    # The manifest first: from here on the root is no dataset, and what was moved is not one yet either.
    names = [manifest.MANIFEST_NAME, *(path.name for path in root.iterdir() if path.name != manifest.MANIFEST_NAME)]
    for name in names:
        if root / name != work:
            (root / name).rename(aside / name)


def remove_aside(aside: Path, progress: Progress) -> None:
    """Removes the replaced dataset, file by listed file; what somebody else put beside it stays."""
    for file in manifest.read(aside).content.listed_files():
        (aside / file.path).unlink(missing_ok=True)
    (aside / manifest.MANIFEST_NAME).unlink(missing_ok=True)
    remove_views(aside)
    for folder in (*SPLITS, REJECTS, "."):
        remove_if_empty(aside / folder)
    if aside.exists():
        progress.say(f"files that were not part of the replaced dataset are kept at {aside}")


def claim_work(root: Path, work: Path, identity: dict[str, Any], *, resume: bool) -> None:
    """Makes the held folder that of this very build and no other; without `resume` what another left is discarded."""
    if not resume:
        _discard(root, work)
    elif other_build(work, identity):
        raise unfinished(root, "discard it with --no-resume")
    claim(root, work, identity)


def _discard(root: Path, work: Path) -> None:
    """Removes what an unfinished build left at `root`, and nothing else: the names are ours."""
    for leftover in work.iterdir():
        if leftover.is_dir():
            shutil.rmtree(leftover)
        elif leftover.name != LOCK_NAME:
            leftover.unlink()
    for folder in (*SPLITS, REJECTS):
        for file in (root / folder).glob("shard_*"):
            file.unlink()
    (root / manifest.PENDING_NAME).unlink(missing_ok=True)
    remove_views(root)


def check_disk(source: Source, options: BuildOptions, root: Path) -> None:
    """Refuses when the estimate does not fit: better than a full disk hours into a build."""
    rows = sum(shard.rows for shard in source.shards)
    tokens = sum(text_bytes(shard) for shard in source.shards) / TEXT_BYTES_PER_TOKEN
    if options.caps.any:
        shares = [options.caps.share(shard.index, options.shards).rows for shard in source.shards]
        read = sum(
            shard.rows if share is None else min(shard.rows, share)
            for shard, share in zip(source.shards, shares, strict=True)
        )
        tokens *= read / rows if rows else 0
        rows = read
        tokens = min(tokens, options.caps.max_tokens or tokens)
    there = 0 if options.overwrite else sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
    needed = int(tokens * BYTES_PER_TOKEN + rows * BYTES_PER_ROW) - there
    free = free_bytes(root)
    if needed > free:
        raise StorageError(
            f"not enough disk: about {needed / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free",
            where=str(root),
            remedy="free some space, give another --out, cap the run (--max-rows), or pass --no-disk-check",
        )
