"""Clears a work place: removes only the files that Spanloom published there.

In: the place. Out: what is removed, and the names that remain. A folder is Spanloom's if its name is the hash of the
identity in its `work.json`; in such a folder, only files with Spanloom's file names are removed. Below the folder of
`spanloom tasks --work` the files that tasks hand on are JSON that names its artifact; digests and tokenizers are
removed beside them. Reports, exports and stores stay: they are results.
"""

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from spanloom.building.parts.work import NAME, WORK_JSON, identity_in
from spanloom.errors import SpanloomError
from spanloom.storage import clear_temporaries_of, is_regular, path_below, remove_files, remove_if_empty
from spanloom.storage.staging import list_objects, read_object
from spanloom.storage.stores.objects import StoredObject
from spanloom.storage.stores.retry import keep_trying
from spanloom.storage.transfer import Transfers, open_store
from spanloom.storage.uri import Uri, is_uri, parse_uri
from spanloom.tokenizers.o200k.asset import ASSET_SHA256

_FILE = re.compile(rf"(?P<folder>[0-9a-f]{{32}})/(?:{re.escape(WORK_JSON)}|shard_\d{{2,}}/(?:{NAME.pattern}))")
_HANDED_ON = re.compile(r"(?P<folder>[\w-]+(?:/\d+)?)/(?:rendered|split|inventory|report)")
"""Outputs of tasks that later tasks read, at `TASK/OUTPUT` or `TASK/INDEX/OUTPUT` (`tasks/listed.py`)."""

_BESIDE = re.compile(r"(?P<folder>[\w-]+(?:/\d+)?)/(?:digests|tokenizer)")
_ASSET = "verify-tokenizer/tokenizer"
"""The copy of the pinned asset that verify-tokenizer hands on, which is known by its hash."""

_ARTIFACT = re.compile(r"[a-z_]+_v\d+")
_MOST_BYTES = 64 << 20
"""Limit of a file that is read to see whose it is."""


@dataclass(frozen=True, kw_only=True)
class Cleared:
    """What is removed by folder of a source and options (the number of files, and their bytes), and the names of files
    that stay, relative to the place."""

    folders: dict[str, tuple[int, int]]
    kept: tuple[str, ...]

    @property
    def files(self) -> int:
        return sum(files for files, _ in self.folders.values())

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.folders.values())


def clear_work(place: str, *, remove: bool = True) -> Cleared:
    """Removes what Spanloom published at a work place; without `remove` only says what that is.

    Raises SpanloomError if it published nothing there.
    """
    if is_uri(place):
        uri = parse_uri(place)
        prefix = f"{uri.key}/" if uri.key else ""
        objects = {entry.uri.key.removeprefix(prefix): entry for entry in list_objects(uri)}
        ours, kept = _divided({name: entry.bytes for name, entry in objects.items()}, place, partial(_object, uri))
        if remove:
            _remove_objects([objects[name] for name in ours if not _shows_whose(name)])
            _remove_objects([objects[name] for name in ours if _shows_whose(name)])
        return Cleared(folders=_by_folder({name: objects[name].bytes for name in ours}), kept=kept)
    root = Path(place)
    sizes = {path.relative_to(root).as_posix(): path.stat().st_size for path in root.rglob("*") if is_regular(path)}
    ours, kept = _divided(sizes, place, lambda name: path_below(root, name).read_bytes())
    if remove:
        clear_temporaries_of(path_below(root, name) for name in ours)
        remove_files(root, sorted(ours, key=_shows_whose))
        remove_if_empty(root)
    return Cleared(folders=_by_folder({name: sizes[name] for name in ours}), kept=kept)


def _by_folder(sizes: dict[str, int]) -> dict[str, tuple[int, int]]:
    folders: dict[str, tuple[int, int]] = {}
    for name, size in sorted(sizes.items()):
        files, total = folders.get(folder := name.partition("/")[0], (0, 0))
        folders[folder] = files + 1, total + size
    return folders


def _divided(sizes: dict[str, int], place: str, read: Callable[[str], bytes]) -> tuple[list[str], tuple[str, ...]]:
    """Names of Spanloom's files, and all others. `read`: the bytes of a file by its name."""
    folders = {
        match["folder"]
        for name in sizes
        if name.endswith(f"/{WORK_JSON}")
        and (match := _FILE.fullmatch(name))
        and identity_in(read(name), match["folder"]) is not None
    }
    handed_on = {
        name: match["folder"]
        for name, size in sizes.items()
        if (match := _HANDED_ON.fullmatch(name)) and size <= _MOST_BYTES and _names_artifact(read(name))
    }
    ours = [
        name
        for name in sizes
        if ((match := _FILE.fullmatch(name)) and match["folder"] in folders)
        or name in handed_on
        or ((match := _BESIDE.fullmatch(name)) and match["folder"] in handed_on.values())
        or (name == _ASSET and hashlib.sha256(read(name)).hexdigest() == ASSET_SHA256)
    ]
    if not ours:
        raise SpanloomError(
            "Spanloom published nothing at this place",
            where=place,
            remedy="give the work_uri of the pipeline; where none was given, it is DATASET_ROOT.work",
        )
    return ours, tuple(sorted(sizes.keys() - {*ours}))


def _shows_whose(name: str) -> bool:
    """Whether the file shows that those beside it are Spanloom's: it is removed last."""
    return name.endswith(WORK_JSON) or _HANDED_ON.fullmatch(name) is not None


def _names_artifact(data: bytes) -> bool:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return False
    artifact = value.get("artifact") if isinstance(value, dict) else None
    return isinstance(artifact, str) and _ARTIFACT.fullmatch(artifact) is not None


def _object(uri: Uri, name: str) -> bytes:
    return read_object(uri / name) or b""


def _remove_objects(objects: list[StoredObject]) -> None:
    def remove(entry: StoredObject) -> None:
        store = open_store(entry.uri)
        keep_trying(lambda: store.delete(entry), store=store, uri=entry.uri)

    Transfers().run([partial(remove, entry) for entry in objects])
