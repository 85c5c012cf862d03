"""Rendered shards at a work place (a bucket or folder), under the hash of source and options, for the next steps.

In: packs and ids of a shard from `packs`. Out: files or objects that are never overwritten, and a manifest of a few KiB
that lists each with its size and sha256. The next steps read the manifest, and check size and sha256.

    WORK/HASH/work.json                       the source and options that were hashed
    WORK/HASH/shard_03/rendered_00000.tar …   written when each is full; a retry of a killed task resumes after them
    WORK/HASH/shard_03/ids.parquet
    WORK/HASH/shard_03/rendered.json          written last: the shard is finished
"""

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.building.parts.packs import IDS_NAME, IdsWriter, members, pack_name, read_pack, unpack, write_pack
from spanloom.building.parts.stored import RENDERED_JSON, OpenPart, read_sidecar
from spanloom.building.recipe import DatasetForm
from spanloom.errors import ArtifactError, ConflictError, SpanloomError
from spanloom.provenance import readable_json, sha256_json
from spanloom.storage import fsync_file, is_regular, link_file, parse_json, sha256_file
from spanloom.storage.claim import check_create_only
from spanloom.storage.publishing import Upload, publish_files
from spanloom.storage.scratch import Scratch
from spanloom.storage.staging import Download, find, list_objects, read_object, stage_file, stage_files
from spanloom.storage.uri import is_uri, parse_uri

ARTIFACT = "rendered_manifest_v1"
WORK_JSON = "work.json"
WORK_ARTIFACT = "work_v1"
NAME = re.compile(r"rendered_\d{5}\.tar|ids\.parquet|rendered\.json")
"""Names of the files of a shard."""


def work_hash(identity: dict[str, Any]) -> str:
    """The name of the folder of a source and options: 32 hex digits."""
    return sha256_json(identity)[:32]


def default_work(root: str) -> str:
    """The default work place: `DATASET_ROOT.work`."""
    return f"{root.rstrip('/')}.work"


def identity_in(data: bytes, folder: str) -> dict[str, Any] | None:
    """The source and options in a `work.json`, if the folder's name is their hash; None for a foreign folder."""
    try:
        value: Any = parse_json(data, SpanloomError, WORK_JSON, folder, "")
        identity = value["identity"]
        ours = value["artifact"] == WORK_ARTIFACT and isinstance(identity, dict) and work_hash(identity) == folder
    except (SpanloomError, KeyError, TypeError):
        return None
    return identity if ours else None


def check_one_number(work: str, shards: int) -> None:
    """Raises ConflictError if the work place has a folder for the same source with another number of shards."""
    for folder, data in _folders(work):
        identity = identity_in(data, folder)
        if identity is not None and identity.get("shards") != shards:
            raise ConflictError(
                f"the work place is that of a source with {identity.get('shards')} shards, this one has {shards}",
                where=f"{work.rstrip('/')}/{folder}",
                remedy=_CLEAR,
            )


def _folders(work: str) -> Iterator[tuple[str, bytes]]:
    """Folders of a work place, each with the content of its `work.json`."""
    if not is_uri(work):
        files = sorted(path for path in Path(work).glob(f"*/{WORK_JSON}") if is_regular(path))
        yield from ((path.parent.name, path.read_bytes()) for path in files)
        return
    uri = parse_uri(work)
    for entry in list_objects(uri):
        folder, _, name = entry.uri.key.removeprefix(f"{uri.key}/" if uri.key else "").partition("/")
        if name == WORK_JSON:
            yield folder, read_object(entry.uri) or b""


def shard_folder(shard: int) -> str:
    """`shard_03`"""
    return f"shard_{shard:02d}"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file of a shard."""

    name: str
    bytes: int
    sha256: str

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "bytes": self.bytes, "sha256": self.sha256}


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """A rendered shard at a work place. `place`: its folder; `given`: source and tokenizer as given to this run."""

    identity: str
    place: str
    family: str
    shard: int
    shards: int
    rows_read: int
    rows: int
    given: dict[str, str]
    entries: tuple[Entry, ...]

    def as_json(self) -> bytes:
        """The manifest of the shard, which is passed to the next steps."""
        about = {name: getattr(self, name) for name in ("identity", "family", "shard", "shards", "rows_read", "rows")}
        entries = ",\n".join(json.dumps(entry.as_dict()) for entry in self.entries)  # one line for each file
        head = json.dumps({"artifact": ARTIFACT, "uri": self.place, **about, "environment": self.given}, indent=2)
        return f'{head[:-2]},\n  "objects": [\n{entries}\n]\n}}\n'.encode()

    @classmethod
    def read(cls, path: Path) -> "Rendered":
        """Reads a manifest. Raises ArtifactError if the file is not one."""
        value = read_sidecar(path)
        if value.get("artifact") != ARTIFACT:
            raise ArtifactError("this is no manifest of a rendered shard", where=str(path), remedy=_RENDER)
        try:
            entries = tuple(Entry(**entry) for entry in value["objects"])
            names = [entry.name for entry in entries]
            if len({*names}) != len(names) or not all(NAME.fullmatch(name) for name in names):
                raise ValueError("names of objects")
            if not {IDS_NAME, RENDERED_JSON} <= {*names}:
                raise ValueError("objects")
        except (TypeError, ValueError) as fault:
            raise ArtifactError(f"the manifest is damaged: {fault}", where=str(path), remedy=_RENDER) from None
        about = {name: value[name] for name in ("identity", "family", "shard", "shards", "rows_read", "rows")}
        return cls(place=value["uri"], given=value["environment"], entries=entries, **about)

    def entry(self, name: str) -> Entry:
        return next(entry for entry in self.entries if entry.name == name)

    @property
    def packs(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.name.endswith(".tar")]


_RENDER = "run render-shard again"


def check_one_work(shards: Sequence[Rendered], places: Sequence[str]) -> None:
    """Raises ArtifactError unless these are the manifests of all shards, in order, of one source with the same options.
    `places`: for messages."""
    if not shards:
        raise ArtifactError("there is no manifest of a rendered shard", remedy="give one for each shard, in order")
    first = shards[0]
    for index, (shard, place) in enumerate(zip(shards, places, strict=True)):
        if shard.shard != index:
            remedy = "give the manifests in shard order"
            raise ArtifactError(f"this is shard {shard.shard}, expected shard {index}", where=place, remedy=remedy)
        if shard.identity != first.identity:
            raise ArtifactError(
                f"the shards are of different sources or options: {shard.identity} here, {first.identity} in shard 00",
                where=place,
                remedy="run render-shard again for all shards with the same options",
            )
    if len(shards) != first.shards:
        what = f"{len(shards)} manifests are given, the source has {first.shards} shards"
        raise ArtifactError(what, where=places[0], remedy="give one for each shard, in order")


# --- Reading ---------------------------------------------------------------------------------------------------------


def staged(scratch: Scratch, shards: Sequence[Rendered], name: str) -> list[Path]:
    """Local copies of the file `name` of each shard, checked against the size and sha256 in its manifest."""
    entries = [shard.entry(name) for shard in shards]
    paths = [scratch.path(f"{shard.place}/{name}") for shard in shards]
    stage_files(
        [
            Download(uri=parse_uri(f"{shard.place}/{name}"), path=path, bytes=entry.bytes, sha256=entry.sha256)
            for shard, entry, path in zip(shards, entries, paths, strict=True)
            if is_uri(shard.place)
        ]
    )
    for shard, entry, path in zip(shards, entries, paths, strict=True):
        if not is_uri(shard.place):
            _check_file(path, entry)
    return paths


def _check_file(path: Path, entry: Entry) -> None:
    if not path.is_file():
        raise ArtifactError("a file of the work place is missing", where=str(path), remedy=_RENDER)
    if path.stat().st_size != entry.bytes or sha256_file(path) != entry.sha256:
        raise ArtifactError(
            "a file of the work place is not the one that its manifest was written for", where=str(path), remedy=_AGAIN
        )


_AGAIN = "remove it, and run render-shard again"


def read_parts(scratch: Scratch, shard: Rendered, whole: dict[str, Any]) -> Iterator[OpenPart]:
    """The parts of a shard, in order. `whole`: its `rendered.json`. The next pack is downloaded while one is read; at
    most two are on this machine."""
    packs = shard.packs
    for pack in packs:
        scratch.path(f"{shard.place}/{pack.name}")  # computed before the thread needs it
    with ThreadPoolExecutor(1) as thread:
        coming: list[Future[list[Path]]] = []
        for number, count in enumerate(whole["packs"]):
            if not coming:
                coming.append(thread.submit(staged, scratch, [shard], packs[number].name))
            (path,) = coming.pop().result()
            if number + 1 < len(packs):
                coming.append(thread.submit(staged, scratch, [shard], packs[number + 1].name))
            first = sum(whole["packs"][:number])
            yield from read_pack(path, whole["parts"][first : first + count])
            if is_uri(shard.place):
                path.unlink()


# --- Writing ---------------------------------------------------------------------------------------------------------


class ShardWork:
    """Publishes a shard to the work place. Rendered parts are packed, and packs are uploaded in the background.

    `parts`: the local folder of the parts, with `rendered/` and `ids/`. Published parts are removed from it.
    """

    def __init__(
        self, scratch: Scratch, work: str, identity: dict[str, Any], shard: int, form: DatasetForm, *, limit: int
    ) -> None:
        self._here, self._form, self._limit = scratch, form, limit
        self.identity = work_hash(identity)
        self._top = f"{work.rstrip('/')}/{self.identity}"
        self.place = f"{self._top}/{shard_folder(shard)}"
        self._about = {"artifact": WORK_ARTIFACT, "identity": identity}
        self.parts = scratch.inner("parts")
        self._pack: list[dict[str, Any]] = []
        self._size = 0
        self._ids: IdsWriter | None = None
        self._counts: list[int] = []
        self._entries: list[Entry] = []
        self._restored = 0  # packs
        self._next: int | None = 0
        """The first part of the next pack of an earlier run; None if there is no further one."""
        self._thread = ThreadPoolExecutor(1)
        self._publishing: list[Future[None]] = []

    def finished(self) -> dict[str, Any] | None:
        """The content of `rendered.json` if an earlier run finished the shard and all its files exist, else None."""
        if (path := _fetched(self._here, f"{self.place}/{RENDERED_JSON}")) is None:
            return None
        if is_uri(self.place):
            sizes = {entry.uri.name: entry.bytes for entry in list_objects(parse_uri(self.place))}
        else:
            sizes = {file.name: file.stat().st_size for file in path.parent.iterdir() if file.is_file()}
        whole = read_sidecar(path)
        if any(sizes.get(entry["name"]) != entry["bytes"] for entry in whole["objects"]):
            return None
        self._entries = [Entry(**entry) for entry in whole["objects"]]
        self._entries.append(_entry(path, RENDERED_JSON))
        return whole

    def begin(self) -> None:
        """Writes `work.json` before any other file. Raises StorageError for a store that overwrites."""
        place, data = f"{self._top}/{WORK_JSON}", readable_json(self._about)
        self._here.create(place, data)
        if is_uri(place):
            check_create_only(data, parse_uri(place))

    def restore(self, part: int) -> None:
        """Called before a part is rendered: if an earlier run published the pack that begins with this part, restores
        the pack's parts, which then count as finished."""
        if part != self._next:
            return
        place = f"{self.place}/{pack_name(self._restored)}"
        if (path := _fetched(self._here, place)) is None:
            self._next = None
            return
        self._next, self._restored = unpack(path, self.parts)[-1] + 1, self._restored + 1
        if is_uri(place):
            path.unlink()

    def add(self, part: dict[str, Any]) -> None:
        """Adds the next part, which must be in the folder of parts."""
        self._ids_writer().append(self.parts / "ids", part)
        self._pack.append(part)
        self._size += sum((self.parts / name).stat().st_size for name in members(part))
        if self._size >= self._limit:
            self._close_pack()

    def finish(self, whole: dict[str, Any]) -> dict[str, Any]:
        """Publishes the remaining files, and `rendered.json` last. `whole`: its content besides the list of files.
        Returns its content.
        """
        if self._pack:
            self._close_pack()
        self._publish(self._ids_writer().close())
        self._wait()
        path = self._here.inner("published") / RENDERED_JSON
        listed = [entry.as_dict() for entry in self._entries]
        whole = {**whole, "packs": self._counts, "objects": listed}
        path.write_bytes(readable_json(whole))
        fsync_file(path)
        self._publish(path)
        self._wait()
        return whole

    def rendered(self, whole: dict[str, Any], places: dict[str, str]) -> Rendered:
        """The manifest of the finished shard."""
        about = {name: whole[name] for name in ("family", "shard", "shards", "rows_read", "rows")}
        return Rendered(identity=self.identity, place=self.place, given=places, entries=tuple(self._entries), **about)

    def _ids_writer(self) -> IdsWriter:
        if self._ids is None:
            path = self._here.inner("published") / IDS_NAME
            self._ids = IdsWriter(path, self._form.about, self._form.split_column)
        return self._ids

    def _close_pack(self) -> None:
        path = self._here.inner("published") / pack_name(len(self._counts))
        names = [name for part in self._pack for name in members(part)]
        write_pack(self.parts, names, path)
        for name in names:
            (self.parts / name).unlink()
        self._counts.append(len(self._pack))
        self._pack, self._size = [], 0
        self._publish(path)

    def _publish(self, path: Path) -> None:
        """In a thread, so that workers need not wait; one pack at a time, so that the scratch folder stays small."""
        self._wait()
        entry = _entry(path, path.name)
        self._entries.append(entry)
        self._publishing.append(self._thread.submit(self._transfer, path, entry))

    def _transfer(self, path: Path, entry: Entry) -> None:
        place = f"{self.place}/{entry.name}"
        try:
            if is_uri(place):
                publish_files([Upload(path=path, uri=parse_uri(place), sha256=entry.sha256)])
            else:
                link_file(path, Path(place))
        except ConflictError as conflict:
            raise ConflictError(
                f"the work place holds other bytes: {conflict.what}", where=conflict.where, remedy=_CLEAR
            ) from None
        path.unlink()

    def _wait(self) -> None:
        while self._publishing:
            self._publishing.pop().result()

    def __enter__(self) -> "ShardWork":
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._ids is not None:
            self._ids.__exit__()


_CLEAR = "give another --work, or clear this one (spanloom work clear), and run again"


def _entry(path: Path, name: str) -> Entry:
    return Entry(name=name, bytes=path.stat().st_size, sha256=sha256_file(path))


def _fetched(scratch: Scratch, place: str) -> Path | None:
    """A local copy of the file at a place, or None if there is none."""
    path = scratch.path(place)
    if not is_uri(place):
        return path if path.is_file() else None
    return None if find(parse_uri(place)) is None else stage_file(parse_uri(place), path)


def has_manifest(scratch: Scratch, place: str, identity: str) -> bool:
    """Whether the manifest of this shard is at `place`. Raises ConflictError if it is the manifest of another."""
    if (path := _fetched(scratch, place)) is None:
        return False
    present = Rendered.read(path)
    if is_uri(place):
        path.unlink()
    if present.identity != identity:
        raise ConflictError(
            "the manifest of a shard of another source, or of other options, is at this place",
            where=place,
            remedy="give another place",
        )
    return True
