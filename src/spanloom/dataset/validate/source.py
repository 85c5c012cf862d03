"""Checks a dataset against its source: what the families have in common.

In: a `SourceCheck`; a family's way to open its source, and to check one shard against it. Out: findings.

    check_against_source   every family's `check_source`: the source as a whole once, then shard by shard
    check_against_folder   the same, where the source is a folder of shards with a manifest
    is_same_files          the source is a file, or files, that each shard reads as a whole
    carried                what is made of the tokenizer and the template in the root
    deep_shares            how many rows of each shard are made again
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from spanloom.conversations.source.folder import Source, SourceShard, open_source
from spanloom.dataset.family import SourceCheck
from spanloom.dataset.manifest import Content, ShardEntry
from spanloom.dataset.validate.content import check_stated
from spanloom.errors import ArtifactError, SpanloomError, TokenizerError
from spanloom.findings import Report
from spanloom.storage import sha256_file

Opened = TypeVar("Opened")


def check_against_source(
    report: Report,
    check: SourceCheck,
    opened: Callable[[Report], Opened | None],
    check_shard: Callable[[Report, ShardEntry, Opened], None],
) -> None:
    """Opens the source with `opened`, and runs `check_shard` on each shard.

    `opened` returns what the checks of all shards need; None, with a finding, if the source is another, or something
    that the dataset carries cannot be read. Its findings are in the report of shard 0: all checks here belong to a
    shard, so that a report joined from shards needs no source.
    """
    of_source = Report()
    source = None if check.at_hand == () else opened(of_source)

    def check_one(own: Report, shard: ShardEntry) -> None:
        if shard.shard == 0:
            own.include(of_source)
        if source is None:
            return
        try:
            check_shard(own, shard, source)
        except ArtifactError as unreadable:
            own.wrong("rows", unreadable.what, shard=shard.shard)

    check.whole.run.each(report, check.whole.content.shards, check_one)


def check_against_folder(
    report: Report,
    check: SourceCheck,
    opened: Callable[[Report, Source], Opened | None],
    check_shard: Callable[[Report, ShardEntry, SourceShard, Opened], None],
) -> None:
    """Opens the source folder and runs `check_shard` on each shard whose file has the sha256 in the source's manifest.

    `opened` gets the folder if it is the one in the dataset's manifest, see `check_against_source`.
    """

    def open_folder(own: Report) -> tuple[Source, Opened] | None:
        source = open_source(check.source, shards=len(check.whole.content.shards), only=check.at_hand)
        more = opened(own, source) if _is_same_folder(own, check, source) else None
        return None if more is None else (source, more)

    def check_one(own: Report, shard: ShardEntry, held: tuple[Source, Opened]) -> None:
        source = held[0].shards[shard.shard]
        if _is_same_shard(own, shard, source):
            check_shard(own, shard, source, held[1])

    check_against_source(report, check, open_folder, check_one)


def _is_same_folder(report: Report, check: SourceCheck, source: Source) -> bool:
    """Whether the manifest of a source folder is the one that the dataset's manifest names; also checks `input`."""
    content = check.whole.content
    if source.manifest_sha256 != content.input.manifest_sha256 or len(source.shards) != len(content.shards):
        report.wrong("source", _ANOTHER, file=str(check.source))
        return False
    wanted = {**source.origin, "shards": [shard.entry for shard in source.shards]}
    stated = content.input.model_dump(mode="json", exclude_unset=True)
    report.add(check_stated(stated, wanted, "input", check="source"))
    return True


def _is_same_shard(report: Report, shard: ShardEntry, source: SourceShard) -> bool:
    """Whether the file of a source's shard has the sha256 in the source's manifest."""
    report.ran("source files", 1)
    if (digest := sha256_file(source.path)) != source.sha256:
        message = f"sha256 {digest}, the source's manifest says {source.sha256}"
        report.wrong("source", message, shard=shard.shard, file=source.path.name)
        return False
    return True


def is_same_files(report: Report, check: SourceCheck, files: Sequence[Path]) -> bool:
    """Whether the files of a source are those in the manifest, in order; also checks their sizes."""
    listed = check.whole.content.input.shards
    report.ran("source files", len(files))
    if [sha256_file(file) for file in files] != [file.sha256 for file in listed]:
        report.wrong("source", _ANOTHER, file=str(check.source))
        return False
    sizes = [{"bytes": file.stat().st_size} for file in files]
    stated = [{"bytes": file.bytes} for file in listed]
    report.add(check_stated(stated, sizes, "input.shards", check="source"))
    return True


_ANOTHER = "the dataset was built from another source"


def carried(report: Report, load: Callable[[], Opened]) -> Opened | None:
    """The result of `load`; None, with a finding, if the tokenizer or the template of the dataset cannot be read."""
    try:
        return load()
    except SpanloomError as fault:
        report.wrong("tokenizer" if isinstance(fault, TokenizerError) else "carried", fault.what, file=fault.where)
    except (OSError, ValueError, RecursionError):  # in the report already
        pass
    return None


def deep_shares(content: Content, deep: int) -> dict[int, int]:
    """How many of `deep` rows are made again of each shard, by its number; all rows if there are no more."""
    shards = content.shards
    if deep >= sum(shard.rows_read for shard in shards):
        return {shard.shard: shard.rows_read for shard in shards}
    return {shard.shard: deep // len(shards) + (at < deep % len(shards)) for at, shard in enumerate(shards)}
