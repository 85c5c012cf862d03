"""Transcripts and their tokenizer, local or at URIs.

In: paths or URIs as text. Out: local paths. A local file is not copied.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spanloom.families.chat.transcripts.files import SUFFIXES
from spanloom.records.staging import staged_records
from spanloom.storage.scratch import Scratch, scratch_for
from spanloom.storage.staging import find
from spanloom.storage.uri import is_uri, parse_uri
from spanloom.tokenizers.o200k.asset import ASSET_NAME
from spanloom.tokenizers.o200k.staging import staged_asset


def staged_transcripts(scratch: Scratch, place: str, only: tuple[int, ...] | None = None) -> Path:  # noqa: ARG001
    """A file of transcripts, or a folder of them. Each shard of a dataset is made of all: `only` changes nothing."""
    return staged_records(scratch, place, SUFFIXES)


def staged_tokenizer(scratch: Scratch, place: str | None) -> Path | None:
    """A tokenizer's JSON file, or the asset, under any name; its kind is detected when it is loaded."""
    if place and is_uri(place) and parse_uri(place).name != ASSET_NAME and find(parse_uri(place)) is not None:
        return scratch.file(place)
    return staged_asset(scratch, place)


@contextmanager
def local_transcripts(
    source: str, tokenizer: str | None = None, scratch: Path | None = None
) -> Iterator[tuple[Path, Path | None]]:
    """Context manager: transcripts, a file or a folder, and their tokenizer as local paths."""
    with scratch_for("transcripts", [source, tokenizer], scratch) as staging:
        yield staged_transcripts(staging, source), staged_tokenizer(staging, tokenizer)
