"""The dataset manifest that every family writes: what a dataset is made of, and the mark that it is one.

In: the two sections `content` (what decides the bytes, and the inventory) and `environment` (when, where, with what).
Out: `manifest.pending.json`, which a clean validation turns into `manifest.json`. A root without `manifest.json` is no
dataset. Same input, options and code give the same `content`, whoever runs it, wherever, with however many workers.
"""

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema

from spanloom.errors import ConflictError, SpanloomError
from spanloom.provenance import canonical_json, readable_json
from spanloom.storage import fsync_directory, publish, publish_bytes, sha256_file
from spanloom.storage.staging import find, list_objects, read_object
from spanloom.storage.uri import Uri

SCHEMA_VERSION = "spanloom_dataset_v1"
MANIFEST_NAME = "manifest.json"
PENDING_NAME = "manifest.pending.json"


class ManifestError(SpanloomError):
    """A manifest is missing, unreadable, or not of this schema."""


def schema() -> dict[str, Any]:
    """The JSON Schema of `SCHEMA_VERSION`."""
    return dict(json.loads(files("spanloom").joinpath(f"{SCHEMA_VERSION}.schema.json").read_bytes()))


def check(manifest: dict[str, Any], where: Path | Uri) -> dict[str, Any]:
    """Returns the manifest. Raises ManifestError naming the first place that does not follow the schema."""
    if isinstance(manifest, dict) and manifest.get("schema_version") == "synth_harmony_v1":
        raise ManifestError(
            "this is a source of conversations, not a dataset",
            where=str(where),
            remedy="`spanloom build --source` makes a dataset of it; give the root of that",
        )
    errors = sorted(jsonschema.Draft202012Validator(schema()).iter_errors(manifest), key=lambda error: list(error.path))
    if errors:
        place = ".".join(map(str, errors[0].absolute_path)) or "(top)"
        raise ManifestError(
            f"the manifest does not follow {SCHEMA_VERSION} at {place}: {errors[0].message}", where=str(where)
        )
    return manifest


def read(path: Path) -> dict[str, Any]:
    """Reads and checks the manifest in the file `path`, or of the dataset in the directory `path`."""
    file = path / MANIFEST_NAME if path.is_dir() else path
    try:
        manifest = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise _no_dataset(path, pending=file.with_name(PENDING_NAME).is_file()) from None
    except ValueError as fault:
        raise ManifestError(f"the manifest is not JSON: {fault}", where=str(file)) from None
    return check(manifest, file)


def read_remote(place: Uri) -> tuple[dict[str, Any], bytes]:
    """The checked manifest in the object `place` (`….json`), or of the dataset at the root `place`; and its bytes."""
    uri = place if place.name.endswith(".json") else place / MANIFEST_NAME
    if (data := read_object(uri)) is None:
        list_objects(place)  # a bucket that does not exist says so here
        raise _no_dataset(place, pending=find(place / PENDING_NAME) is not None)
    try:
        manifest = json.loads(data)
    except ValueError as fault:
        raise ManifestError(f"the manifest is not JSON: {fault}", where=str(uri)) from None
    return check(manifest, uri), data


def _no_dataset(where: Path | Uri, *, pending: bool) -> ManifestError:
    return ManifestError(
        f"there is no {MANIFEST_NAME}: this is not a finished dataset"
        + (f" ({PENDING_NAME} stands there, so it was built but not validated)" if pending else ""),
        where=str(where),
        remedy="run the build again, or `spanloom step validate-alignment`"
        if pending
        else "give the root of a dataset",
    )


def read_any(root: Path) -> dict[str, Any]:
    """The manifest of the dataset at `root`, or the pending one where it was built but not promoted yet."""
    pending = root / PENDING_NAME
    return read(pending if pending.is_file() and not (root / MANIFEST_NAME).is_file() else root)


def write_pending(root: Path, manifest: dict[str, Any]) -> None:
    """Writes `manifest.pending.json`, create-only: one that stands counts as written when its `content` is equal.

    Raises ConflictError when another one stands there, pending or promoted.
    """
    check(manifest, root / PENDING_NAME)
    for name in (MANIFEST_NAME, PENDING_NAME):
        if not (root / name).exists():
            continue
        standing = read(root / name)
        if canonical_json(standing["content"]) != canonical_json(manifest["content"]):
            raise ConflictError(
                f"a {name} with other content stands here already, made {_made(standing)}",
                where=str(root),
                remedy="build into another --out, or remove that dataset first",
            )
        if name == PENDING_NAME:
            return
    publish_bytes(readable_json(manifest), root / PENDING_NAME)


def promote(root: Path) -> Path:
    """Turns `manifest.pending.json` into `manifest.json`, create-only. Returns the path of the manifest."""
    pending, final = root / PENDING_NAME, root / MANIFEST_NAME
    if final.exists():
        if canonical_json(read(final)["content"]) != canonical_json(read(pending)["content"]):
            raise ConflictError(
                f"another {MANIFEST_NAME} stands here already, made {_made(read(final))}", where=str(root)
            )
        pending.unlink()
    else:
        publish(pending, final, sha256_file(pending))
    fsync_directory(root)
    return final


def _made(manifest: dict[str, Any]) -> str:
    """Who made a dataset, when and with which code, for the one whose build it stands in the way of."""
    environment = manifest["environment"]
    by = f"by {environment['built_by']} " if "built_by" in environment else ""
    return f"{by}at {environment['created_at']} with git SHA {manifest['content']['git_sha']}"


_NOTHING = object()


def diff(before: Any, after: Any, path: str = "content") -> Iterator[tuple[str, Any, Any]]:
    """Places where two JSON values differ: `(path, before, after)`, with None where one side has nothing there.

    Yields nothing exactly when their canonical JSON is the same: 1 and 1.0 differ, and so do null and nothing.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from diff(before.get(key, _NOTHING), after.get(key, _NOTHING), f"{path}.{key}")
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            was, now = (side[index] if index < len(side) else _NOTHING for side in (before, after))
            yield from diff(was, now, f"{path}[{index}]")
    else:
        was, now = (None if side is _NOTHING else side for side in (before, after))
        if _NOTHING in (before, after) or canonical_json(was) != canonical_json(now):
            yield path, was, now
