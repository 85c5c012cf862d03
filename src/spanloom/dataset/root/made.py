"""Makes a dataset without resumable steps, or reuses the finished one at the root.

In: a held root, the record of the build, and two functions of the family. Out: the manifest. Builds that keep finished
parts and resume after them are in `families/harmony/build.py`.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from spanloom.dataset import manifest
from spanloom.dataset.manifest import Content, ListedFile, Manifest, ShardEntry, SplitRule, TokenizerEntry
from spanloom.dataset.root.inventory import add_up, first_damage
from spanloom.dataset.root.lock import (
    BuildRecord,
    clear_leftovers,
    is_work_of,
    read_record,
    release_if_unused,
)
from spanloom.errors import ConflictError
from spanloom.provenance import environment_here, git_sha, sha256_json
from spanloom.split import VALID, split_rule, valid_threshold
from spanloom.storage import publish_bytes
from spanloom.supervision import ALIGNMENT
from spanloom.tokenizers.encoding import JsonTokenizer

Differs = Callable[[Content], str | None]
"""Function: describes how a finished dataset's options or input differ from the requested ones; None if they match."""

Made = TypeVar("Made")


def made_or_standing(
    root: Path,
    work: Path,
    record: BuildRecord,
    differs: Differs,
    make: Callable[[], Made],
    *,
    claim: Callable[[], None],
    resume: bool,
) -> tuple[Made | Manifest, bool]:
    """Returns `(result of make, False)`, or `(manifest, True)` of a matching finished dataset at the held root.

    `make` writes the dataset and its pending manifest. If it fails, its temporary files are removed, and also the claim
    if it has written no file. `claim` claims the root. Without `resume`, a finished dataset is a
    conflict, unless it is of this build, killed before its intermediates were removed. Raises ConflictError if there is
    another dataset, or another build has begun.
    """
    if (root / manifest.MANIFEST_NAME).exists():
        if not resume and ((begun := read_record(work)) is None or begun.identity != record.identity):
            raise another_dataset(root, "--no-resume asks to build again")
        finished = standing_dataset(root, differs)
        if is_work_of(work, record):
            clear_leftovers(root, work, record)
        return finished, True
    claim()
    (root / manifest.PENDING_NAME).unlink(missing_ok=True)  # of a killed run: it is written again
    try:
        return make(), False
    except BaseException:
        clear_leftovers(root, work, record)
        release_if_unused(root, work, record)
        raise


def standing_dataset(root: Path, differs: Differs) -> Manifest:
    """The manifest of the finished dataset at `root`, undamaged and made by this code. Raises ConflictError naming the
    difference."""
    finished = manifest.read(root)
    difference = differs(finished.content)
    if difference is None and finished.content.git_sha != git_sha():
        difference = f"it was made by other code ({finished.content.git_sha})"
    if difference is None and (damage := first_damage(root, finished.content)) is not None:
        difference = f"it is this one, but damaged: {damage}"
    if difference is not None:
        raise another_dataset(root, difference)
    return finished


def another_dataset(root: Path, difference: str) -> ConflictError:
    """The error for a root whose finished dataset is not the requested one."""
    return ConflictError(
        f"the output root already holds another dataset: {difference}",
        where=str(root),
        remedy="give another --out, or replace it with --overwrite",
    )


def write_pending(
    root: Path,
    *shards: ShardEntry,
    config: dict[str, Any],
    tokenizer: JsonTokenizer,
    id_column: str,
    environment: dict[str, Any],
    repeated_rows: int = 0,
    **content: Any,
) -> Manifest:
    """Writes and returns the pending manifest of a dataset of these shards, split by ids.

    `config` contains `eod` (text and id) and `valid_fraction`; `content`: the remaining fields of `Content`.
    """
    totals, fraction = add_up(shards), config["valid_fraction"]
    whole = manifest.new_manifest(
        Content(
            config=config,
            config_sha256=sha256_json(config),
            tokenizer=TokenizerEntry(
                name=tokenizer.name, sha256=tokenizer.sha256, vocab_size=tokenizer.vocab_size, eod=config["eod"]["id"]
            ),
            split=SplitRule(
                rule=split_rule(id_column),
                valid_fraction=fraction,
                threshold=str(valid_threshold(fraction)),
                repeated_rows=repeated_rows,
                realised_valid_fraction=totals.splits[VALID].sequences / totals.sequences,
            ),
            alignment=ALIGNMENT,
            totals=totals,
            shards=shards,
            **content,
        ),
        environment_here(environment),
    )
    manifest.write_pending(root, whole.as_dict())
    return whole


def published(root: Path, name: str, data: bytes) -> ListedFile:
    """Creates a file of the dataset that belongs to no shard. Returns its entry for the manifest."""
    publish_bytes(data, root / name)
    return ListedFile(path=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
