"""A dataset root at a path or a URI: staged for reading, published file by file.

In: places as text. Out: local paths; objects created in order: data, then indexes, then the manifest.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spanloom.dataset import manifest
from spanloom.dataset.manifest import Check, ListedFile, Manifest
from spanloom.dataset.root.layout import REJECTS, VIEW_NAMES
from spanloom.errors import ConflictError
from spanloom.provenance import git_sha
from spanloom.split import SPLITS
from spanloom.storage import sha256_file, write_atomically
from spanloom.storage.claim import claim_root
from spanloom.storage.publishing import Upload, publish_file, publish_files, remove_if_allowed
from spanloom.storage.scratch import Scratch, scratch_for
from spanloom.storage.staging import Download, find, list_objects, read_object, safe_name, stage_files
from spanloom.storage.stores.objects import StoredObject
from spanloom.storage.uri import Uri, is_uri, parse_uri


@contextmanager
def local_root(root: str, scratch: Path | None = None) -> Iterator[Path]:
    """The local path of the dataset at `root`, staged without validation, while the block runs."""
    with scratch_for("root", [root], scratch) as staging:
        yield staged_root(staging, root)


def staged_root(
    scratch: Scratch, place: str, check: Check[object] = manifest.check, only: Callable[[str], bool] | None = None
) -> Path:
    """The local path of the dataset at a place. Stages its manifests and all files of its folders, also unlisted or
    damaged ones, for validation.

    `check`: that of its manifest's schema. `only`: whether to stage a file, by its path in the root.
    """
    path = scratch.path(place)
    if not is_uri(place):
        return path
    uri = parse_uri(place)
    if not staged_manifests(uri, path):
        manifest.read_remote(uri, check)  # raises the error for a root without a manifest
    content = manifest.read_any_as(path, manifest.as_json(check))["content"]
    known = {file.path: file.sha256 for file in manifest.files_of(content)}
    folders = {*SPLITS, REJECTS}
    downloads = []
    for name, entry in listed_root(uri).items():
        if (name.split("/")[0] in folders or name in known) and (only is None or only(name)):
            target = path / safe_name(name, uri)
            # A file that an earlier run staged is kept only if it matches the manifest; validation checks the others.
            if not (target.is_file() and known.get(name) == sha256_file(target)):
                downloads.append(Download(uri=entry.uri, path=target, bytes=entry.bytes))
    stage_files(downloads)
    return path


def listed_root(uri: Uri) -> dict[str, StoredObject]:
    """The objects below a root, by their paths relative to it."""
    return {entry.uri.key.removeprefix(f"{uri.key}/" if uri.key else ""): entry for entry in list_objects(uri)}


def staged_manifests(uri: Uri, directory: Path) -> bool:
    """Stages the current `manifest.json` and `manifest.pending.json` of a root. Returns whether one of them exists."""
    return bool(_staged(uri, directory, (manifest.MANIFEST_NAME, manifest.PENDING_NAME)))


def staged_views(uri: Uri, directory: Path) -> dict[str, bytes]:
    """Stages the current report and card of a root; returns their bytes, so that a card edited by a user stays."""
    return _staged(uri, directory, VIEW_NAMES)


def _staged(uri: Uri, directory: Path, names: Iterable[str]) -> dict[str, bytes]:
    present = {}
    for name in names:
        data = read_object(uri / name)
        (directory / name).unlink(missing_ok=True)
        if data is not None:
            write_atomically(directory / name, data)
            present[name] = data
    return present


def publish_data(files: Iterable[ListedFile], local_root: Path, uri: Uri) -> None:
    """Publishes all data before any `.idx`, as on a disk: without its index, Megatron does not see a dataset."""
    files = list(files)
    for indexes in (False, True):
        publish_files(
            [
                Upload(path=local_root / file.path, uri=uri / file.path, sha256=file.sha256)
                for file in files
                if file.path.endswith(".idx") is indexes
            ]
        )


def publish_pending(
    uri: Uri, local_root: Path, written: Mapping[str, Any], check: Check[object] = manifest.check
) -> None:
    """Publishes `manifest.pending.json`. Raises ConflictError if one with other content exists."""
    pending = local_root / manifest.PENDING_NAME
    try:
        publish_file(pending, uri / manifest.PENDING_NAME)
    except ConflictError:  # another writer was faster: its manifest has another time, but may have the same content
        staged_manifests(uri, local_root)
        manifest.write_pending(local_root, written, check)


def made_at(
    root: str, scratch: Scratch, identity: Callable[[], Mapping[str, Any]], make: Callable[[Path], Manifest]
) -> dict[str, Any]:
    """The pending manifest of the dataset that `make` writes at `root`, directly or, for a URI, in scratch and then
    published.

    `identity`: what decides its bytes, beside the code; a remote root is claimed with it first. Raises ConflictError if
    another build owns the root, or other bytes exist under one of the names.
    """
    if not is_uri(root):
        return make(Path(root)).as_dict()
    uri = parse_uri(root)

    def assemble(local_root: Path) -> dict[str, Any]:
        written = make(local_root)
        publish_data(written.content.listed_files(), local_root, uri)
        return written.as_dict()

    claim_root(uri, {"git_sha": git_sha(), **identity()})
    shutil.rmtree(scratch.path(root), ignore_errors=True)  # files of a killed run, perhaps of another source
    return pending_at(root, scratch, assemble)


def pending_at(
    root: str, scratch: Scratch, assemble: Callable[[Path], dict[str, Any]], check: Check[object] = manifest.check
) -> dict[str, Any]:
    """The pending manifest, as a JSON value, that `assemble` writes in a local root; published if `root` is a URI.

    At a remote root, a manifest with the same `content`, pending or promoted, counts as written.
    """
    if not is_uri(root):
        return assemble(Path(root))
    uri, local = parse_uri(root), scratch.path(root)
    if staged_manifests(uri, local):
        return assemble(local)  # `assemble` compares it with the existing manifest
    written = assemble(local)
    publish_pending(uri, local, written, check)
    return written


def publish_promoted(uri: Uri, local_root: Path, standing_views: dict[str, bytes]) -> None:
    """Publishes views and `manifest.json`, the last object of a dataset, and removes the pending manifest."""
    for name in VIEW_NAMES:
        if (local_root / name).is_file() and (local_root / name).read_bytes() != standing_views.get(name):
            publish_file(local_root / name, uri / name, replace=True)
    publish_file(local_root / manifest.MANIFEST_NAME, uri / manifest.MANIFEST_NAME)
    if find(uri / manifest.PENDING_NAME) is not None:
        remove_if_allowed(uri / manifest.PENDING_NAME)
