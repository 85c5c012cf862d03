"""The manifest of prepared games, `spanloom_chess_v1`, and the mark that a folder holds them.

In: `content` (what decides the bytes, and the inventory) and `environment`. Out: `manifest.pending.json`, which a clean
validation turns into `manifest.json`.
"""

import hashlib
import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema

from spanloom.dataset.manifest import MANIFEST_NAME, PENDING_NAME, ManifestError
from spanloom.errors import ConflictError
from spanloom.families.chess.vocabulary import TOKENS, VOCABULARY_SIZE
from spanloom.provenance import canonical_json, readable_json
from spanloom.storage import fsync_directory, publish, publish_bytes, sha256_file

SCHEMA_VERSION = "spanloom_chess_v1"
FAMILY = "chess"


def vocabulary_said() -> dict[str, Any]:
    """What a manifest says of the vocabulary: its size and the sha256 of the tokens in the order of their ids."""
    digest = hashlib.sha256("\n".join(TOKENS).encode()).hexdigest()
    return {"name": "chess_1968", "size": VOCABULARY_SIZE, "sha256": digest}


def schema() -> dict[str, Any]:
    """The JSON Schema of `SCHEMA_VERSION`."""
    return dict(json.loads(files(__package__).joinpath(f"{SCHEMA_VERSION}.schema.json").read_bytes()))


def check(manifest: Any, where: Path) -> dict[str, Any]:
    """Returns the manifest. Raises ManifestError naming the first place that does not follow the schema."""
    errors = sorted(jsonschema.Draft202012Validator(schema()).iter_errors(manifest), key=lambda error: list(error.path))
    if errors:
        place = ".".join(map(str, errors[0].absolute_path)) or "(top)"
        raise ManifestError(
            f"the manifest does not follow {SCHEMA_VERSION} at {place}: {errors[0].message}", where=str(where)
        )
    return dict(manifest)


def is_prepared(folder: Path) -> bool:
    """Whether a folder is, or is about to be, a root of prepared games rather than a folder of Parquet files."""
    for name in (MANIFEST_NAME, PENDING_NAME):
        try:
            if json.loads((folder / name).read_bytes())["schema_version"] == SCHEMA_VERSION:
                return True
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return False


def read(root: Path, *, pending: bool = False) -> dict[str, Any]:
    """The checked manifest of the prepared games at `root`; with `pending` the pending one where no other stands."""
    file = root / MANIFEST_NAME
    if not file.is_file() and pending:
        file = root / PENDING_NAME
    try:
        manifest = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise ManifestError(
            f"there is no {MANIFEST_NAME}: these are no finished prepared games",
            where=str(root),
            remedy="run `spanloom chess prepare` (again), or give the root of prepared games",
        ) from None
    except ValueError as fault:
        raise ManifestError(f"the manifest is not JSON: {fault}", where=str(file)) from None
    return check(manifest, file)


def write_pending(root: Path, manifest: dict[str, Any]) -> None:
    """Writes `manifest.pending.json`, create-only: one that stands counts as written when its `content` is equal.

    Raises ConflictError when another one stands there, pending or promoted.
    """
    check(manifest, root / PENDING_NAME)
    for name in (MANIFEST_NAME, PENDING_NAME):
        if not (root / name).exists():
            continue
        standing = json.loads((root / name).read_bytes())
        if canonical_json(standing["content"]) != canonical_json(manifest["content"]):
            raise ConflictError(
                f"a {name} with other content stands here already",
                where=str(root),
                remedy="prepare into another --out, or remove what stands there first",
            )
        if name == PENDING_NAME:
            return
    publish_bytes(readable_json(manifest), root / PENDING_NAME)


def promote(root: Path) -> Path:
    """Turns `manifest.pending.json` into `manifest.json`, create-only. Returns the path of the manifest."""
    pending, final = root / PENDING_NAME, root / MANIFEST_NAME
    if final.exists():
        write_pending(root, json.loads(pending.read_bytes()))  # equal content, or a conflict
        pending.unlink()
    else:
        publish(pending, final, sha256_file(pending))
    fsync_directory(root)
    return final


def listed_files(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every file that the manifest names, as `{path, bytes, sha256}`."""
    for shard in content["shards"]:
        for counts in shard["splits"].values():
            yield from counts["files"]
        if shard["rejects_file"]:
            yield shard["rejects_file"]
