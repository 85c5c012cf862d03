"""Downloads a dataset from a bucket: every file verified by the manifest's size and sha256, the manifest last.

In: the URI of a dataset root, a folder. Out: the same dataset in the folder. Existing files are kept, and a broken
download is resumed. A folder without `manifest.json` is not complete: run the same command again.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from spanloom.dataset import manifest
from spanloom.dataset.manifest import Check
from spanloom.errors import ConflictError, SpanloomError
from spanloom.storage import (
    clear_temporaries_of,
    held,
    open_lock,
    path_below,
    publish_bytes,
    sha256_file,
    special_file_conflict,
)
from spanloom.storage.staging import Download, stage_files
from spanloom.storage.transfer import OnProgress, Transfers
from spanloom.storage.uri import is_uri, parse_uri

LOCK_NAME = ".spanloom-fetch.lock"


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """The numbers of files and bytes that were downloaded, and that were already in the folder."""

    files_fetched: int
    bytes_fetched: int
    files_kept: int
    bytes_kept: int


def fetch(
    place: str,
    directory: Path,
    on_progress: OnProgress | None = None,
    *,
    check: Check[object] = manifest.check,
) -> Fetched:
    """Downloads the dataset at the URI `place` to `directory`. `check`: the check of its manifest's schema.

    Raises ManifestError if there is no finished dataset, StorageError for a file that is missing or differs from the
    manifest, ConflictError if `directory` holds other bytes under one of the names. Nothing is overwritten.
    """
    if not is_uri(place):
        raise SpanloomError(
            f"{place!r} is not a URI: fetch takes gs://bucket/dataset, s3://bucket/dataset or hf://datasets/OWNER/NAME/path",
            remedy="a dataset on a disk can be used, or copied, as it is",
        )
    uri = parse_uri(place)
    remote, data = manifest.read_remote(uri, manifest.as_json(check))
    downloads = [
        Download(
            uri=uri / file.path,
            path=_place(directory, file.path),
            bytes=file.bytes,
            sha256=file.sha256,
        )
        for file in manifest.files_of(remote["content"])
    ]
    final = directory / manifest.MANIFEST_NAME
    if final.exists():
        if not manifest.same_content(manifest.read_as(final, manifest.as_json(check)), remote):
            raise ConflictError(
                f"the folder holds another dataset than {uri}",
                where=str(final),
                remedy="fetch into another folder; `spanloom manifest diff` shows where the two differ",
            )
        missing = _missing(downloads)
        if not missing:  # complete: nothing must be written, so a read-only volume works
            _clear_leftovers(directory)
            return _fetched(downloads, missing)
    with _locked(directory):
        missing = _missing(downloads)
        stage_files(missing, on_progress=on_progress)
        clear_temporaries_of([*(download.path for download in downloads), final])
        if not final.exists():
            publish_bytes(data, final)
    return _fetched(downloads, missing)


def _place(directory: Path, name: str) -> Path:
    """The local path of a file. Raises ConflictError if it, or one of its folders, is a link."""
    path = path_below(directory, name)
    if path.is_symlink():
        raise special_file_conflict(path)
    return path


def _fetched(downloads: list[Download], missing: list[Download]) -> Fetched:
    came = sum(download.bytes or 0 for download in missing)
    return Fetched(
        files_fetched=len(missing),
        bytes_fetched=came,
        files_kept=len(downloads) - len(missing),
        bytes_kept=sum(download.bytes or 0 for download in downloads) - came,
    )


def _missing(downloads: list[Download]) -> list[Download]:
    """The downloads whose files do not exist. Raises ConflictError for an existing file with other bytes."""
    missing: list[Download] = []

    def look(download: Download) -> None:
        if not download.path.exists():
            missing.append(download)
        elif download.path.stat().st_size != download.bytes or sha256_file(download.path) != download.sha256:
            raise ConflictError(
                f"a file holds other bytes than {download.uri}",
                where=str(download.path),
                remedy="remove it if it is a damaged copy, or fetch into another folder",
            )

    Transfers().run([lambda download=download: look(download) for download in downloads])  # type: ignore[misc]
    return sorted(missing, key=lambda download: download.path)


def _clear_leftovers(directory: Path) -> None:
    """Removes the lock and temporary files of a run that was killed at its very end, if the folder is writable."""
    if (directory / LOCK_NAME).exists():
        with suppress(OSError, ConflictError), _locked(directory):
            clear_temporaries_of([directory / manifest.MANIFEST_NAME])


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Allows one fetch at a time into a folder: two would write the same partial files."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / LOCK_NAME
    what = "another fetch into this folder is running"
    refusal = ConflictError(what, where=str(directory), remedy="wait for it to end")
    with open_lock(path) as lock, held(lock, path, refusal):
        yield
        path.unlink(missing_ok=True)
