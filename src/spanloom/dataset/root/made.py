"""A dataset root that is made in one go: the finished one that is there, or the one that is made now.

In: a held root, the record of the build, and two functions of the family. Out: the manifest. Builds that keep finished
parts and go on from there do more than this (`families/harmony/build.py`).
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
    claim_unless_begun,
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
"""What of the options or the input of a finished dataset is not as it is requested now; None where all is."""

Made = TypeVar("Made")


def made_or_standing(
    root: Path,
    work: Path,
    record: BuildRecord,
    differs: Differs,
    make: Callable[[], Made],
    *,
    claim: Callable[[], None] | None = None,
    resume: bool = True,
) -> tuple[Made | Manifest, bool]:
    """What `make` returns, or the manifest of the finished dataset that is at the held root; and whether it was.

    `make` writes the dataset and its pending manifest; where it fails, its temporary files are removed, and where none
    of its files are, the claim too. `claim`: how the root is claimed, in place of `claim_unless_begun`. Without
    `resume` a finished dataset is another one, unless its build was killed before its intermediates were removed.
    Raises ConflictError where another dataset is there, or another build has begun.
    """
    if (root / manifest.MANIFEST_NAME).exists():
        if not resume and ((begun := read_record(work)) is None or begun.identity != record.identity):
            raise another_dataset(root, "--no-resume asks to build again")
        finished = standing_dataset(root, differs)
        if is_work_of(work, record):
            clear_leftovers(root, work, record)
        return finished, True
    if claim is None:
        claim_unless_begun(root, work, record)
    else:
        claim()
    (root / manifest.PENDING_NAME).unlink(missing_ok=True)  # of a run that stopped: it is made again
    try:
        return make(), False
    except BaseException:
        clear_leftovers(root, work, record)
        release_if_unused(root, work, record)
        raise


def standing_dataset(root: Path, differs: Differs) -> Manifest:
    """The finished dataset at `root`, whole and of this code. Raises ConflictError saying what differs."""
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
    """The error for a root with a finished dataset that is not the one that is requested."""
    return ConflictError(
        f"the output root already holds another dataset: {difference}",
        where=str(root),
        remedy="give another --out, or remove that dataset first",
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
    """The pending manifest of a dataset of these shards, split by ids; written, and returned.

    `config` has the `eod` (text and id) and the `valid_fraction`; `content`: the fields of `Content` that are left.
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
    """A file of the dataset beside its shards, created, as a manifest lists it."""
    publish_bytes(data, root / name)
    return ListedFile(path=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
