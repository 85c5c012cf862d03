"""Checks the output root before a build: the same dataset, another one, an unfinished build, too little disk.

In: the root, the options, the build's identity. Out: whether the dataset is the requested one; a free root or an error.
"""

from functools import partial
from pathlib import Path
from typing import Any

from spanloom.conversations.source.folder import BATCH_ROWS, Part, Source, read_rows, text_bytes
from spanloom.conversations.source.rejects import RowRefusedError, reject_limit
from spanloom.dataset.manifest import Content
from spanloom.dataset.root.inventory import first_damage
from spanloom.dataset.root.lock import (
    NEW_NAME,
    BuildRecord,
    claim_or_discard,
    data_names,
)
from spanloom.errors import StorageError
from spanloom.families.harmony.contract.config import ARRAY_DTYPES
from spanloom.families.harmony.contract.conversation import parse_conversation
from spanloom.families.harmony.contract.history import CutRules, cut_conversation
from spanloom.families.harmony.contract.profile import profile_of_source
from spanloom.families.harmony.options import BuildOptions
from spanloom.families.harmony.render.routes import renderer_version
from spanloom.provenance import git_sha
from spanloom.report.views import remove_views
from spanloom.split import SPLITS
from spanloom.storage import free_bytes

SPLIT_NAME = "split.json"
"""The intermediate in `.work` with the number of valid rows, and of rows that repeat an id."""

# Peak disk use per token: 4 + 1 + 1 bytes in the .bin files, and the rendered parts (4 bytes if lz4 cannot compress
# them; mask and span next to nothing), which are removed only at the end. Conversations have 3.6 (much code and
# numbers) to 5.6 (real SYNTH) bytes of JSON per token: 3.5 is a safe estimate.
BYTES_PER_TOKEN = 6 + 4.5
TEXT_BYTES_PER_TOKEN = 3.5
BYTES_PER_ROW = 200


def differs(root: Path, content: Content, identity: dict[str, Any], options: BuildOptions) -> str | None:
    """Why the dataset at `root` is not the requested one, or None if it is and its files are intact."""
    if content.renderer is None or content.split is None:
        return f"it is of the family {content.family}"
    if not _made_of(content, identity):
        return "it was built with other options or from another source"
    if content.git_sha != git_sha() or content.renderer.version != renderer_version(options.renderer):
        return f"it was built by other code ({content.git_sha}, {content.renderer.version})"
    if content.split.repeated_rows and options.on_duplicate == "error":
        return "it has duplicate ids, which --on-duplicate error does not allow"
    for shard in content.shards:
        if sum(shard.rejected.values()) > reject_limit(options.max_rejects, shard.rows_read):
            return "rows were rejected for it, more than --max-rejects allows"
    damage = first_damage(root, content)
    return None if damage is None else f"it is this one, but damaged: {damage}"


def record_of(options: BuildOptions, identity: dict[str, Any]) -> BuildRecord:
    """The files that this build may write below its root."""
    shards = options.shards or 0
    each = [name for shard in range(shards) for name in work_names(shard)]
    return BuildRecord(
        identity=identity,
        files=data_names(shards=shards, splits=SPLITS, arrays=ARRAY_DTYPES, rejects=True),
        work=(*each, SPLIT_NAME, NEW_NAME),
    )


def work_names(shard: int) -> tuple[str, str, str]:
    """The intermediates of a shard in `.work`: the rendered shard, its ids, its inventory."""
    return f"rendered_{shard:02d}", f"ids_{shard:02d}", f"inventory_{shard:02d}.json"


def claim_work(root: Path, work: Path, record: BuildRecord, finished: Content | None, *, resume: bool) -> None:
    """Claims the held work folder for this build; without `resume`, the files of an earlier build are discarded.

    `finished`: the finished dataset at the root that will be replaced; its files are not touched.
    """
    made_by = None if finished is None else partial(_made_of, finished)
    claim_or_discard(root, work, record, made_by=made_by, resume=resume, remove_views=remove_views)


def _made_of(content: Content, identity: dict[str, Any]) -> bool:
    """Whether a dataset was built with these options from this source."""
    return content.renderer is not None and identity == {
        "config": content.config,
        "manifest_sha256": content.input.manifest_sha256,
        "renderer": content.renderer.name,
    }


def _growth(source: Source, rules: CutRules) -> tuple[float, float]:
    """Estimates from the first rows of each shard: text written ÷ text of the conversations, and documents per row."""
    original = written = rows = documents = 0
    for shard in source.shards:
        part = Part(index=0, row_groups=(0,), first_row=0, rows=min(shard.rows, BATCH_ROWS))
        for batch in read_rows(shard, part) if shard.rows else ():
            for text in batch.messages_json.to_pylist():
                try:
                    conversation = parse_conversation(text, profile=profile_of_source(source.format))
                except RowRefusedError:
                    continue
                cuts = cut_conversation(conversation, rules).cuts
                sizes = {id(message): _size(message) for message in conversation.messages}
                original += sum(sizes.values())
                shown = [message for cut in cuts for message in cut.shown.messages]  # most of them shared
                written += sum(sizes[id(message)] if id(message) in sizes else _size(message) for message in shown)
                rows, documents = rows + 1, documents + len(cuts)
    return written / original if original else 1.0, documents / rows if rows else 1.0


def _size(message: dict[str, Any]) -> int:
    return len(str(message.get("content")))


def check_disk(source: Source, options: BuildOptions, folder: Path) -> None:
    """Raises StorageError if the estimated size does not fit, instead of a full disk hours into a build. The files that
    an unfinished build has left in `folder` are subtracted from the estimate."""
    rows = sum(shard.rows for shard in source.shards)
    tokens = sum(text_bytes(shard) for shard in source.shards) / TEXT_BYTES_PER_TOKEN
    documents = 1.0
    if options.rules is not None:
        repeated, documents = _growth(source, options.rules)
        tokens *= repeated
    if options.caps.any:
        read = sum(options.caps.rows_read([shard.rows for shard in source.shards]))
        tokens *= read / rows if rows else 0
        rows = read
        tokens = min(tokens, options.caps.max_tokens or tokens)
    existing = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    needed = int(tokens * BYTES_PER_TOKEN + rows * documents * BYTES_PER_ROW) - existing
    free = free_bytes(folder)
    if needed > free:
        raise StorageError(
            f"not enough disk: about {needed / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free",
            where=str(options.root),
            remedy="free some space, give another --out, cap the run (--max-rows), or pass --no-disk-check",
        )
