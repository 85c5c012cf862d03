"""The dataset manifest that every family writes: what a dataset is made of, and the mark that it is finished.

In: the two sections `content` (what decides the bytes, and the inventory) and `environment` (when, where, with what).
Out: `manifest.pending.json`, which a clean validation turns into `manifest.json`. A root without `manifest.json` is not
a finished dataset. Same input, options and code give the same `content`, for any user, place and number of workers.

`Manifest` is its type in Python, `spanloom_dataset_v1.schema.json` its schema for other languages; a test compares the
two.

Data folders that are not token datasets have manifests with their own schema, the same two sections and the same list
of files in their shards: functions that read, write, promote or compare manifests take the `check` of that schema.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from spanloom.errors import ConflictError, SpanloomError
from spanloom.provenance import canonical_json, readable_json, sha256_json
from spanloom.storage import fsync_directory, parse_json, publish, publish_bytes, read_json, sha256_file
from spanloom.storage.staging import find, list_objects, read_object
from spanloom.storage.uri import Uri, is_uri, parse_uri

SCHEMA_VERSION = "spanloom_dataset_v1"
MANIFEST_NAME = "manifest.json"
PENDING_NAME = "manifest.pending.json"


_AGAIN = "fetch or build the dataset again"


class ManifestError(SpanloomError):
    """A manifest is missing, unreadable, or not of this schema."""


M = TypeVar("M")
Check = Callable[[Any, Path | Uri], M]
"""Function: JSON value, and its path or URI → the manifest. Raises ManifestError for a value not of the schema."""


class _Section(BaseModel):
    """Immutable. Keys that this version does not know are kept unchanged, and written again."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)


class ListedFile(_Section):
    """A file of the dataset: `path` relative to the root, with slashes."""

    path: str
    bytes: int
    sha256: str


class SplitCounts(_Section):
    """The counts of one split. `span_tokens`: labels of each span; `fitting`: limit in tokens → documents within it."""

    sequences: int
    tokens: int
    span_tokens: dict[str, int]
    longest: int
    fitting: dict[str, int]


class ShardSplit(SplitCounts):
    """The counts and the files of one split of one shard."""

    files: tuple[ListedFile, ...]


class ShardEntry(_Section):
    """One shard. `rejected`: rows by reason; `packing`: counts of packing its tokens, if documents are blocks;
    `cutting`: counts of cutting its conversations, if a row may become several documents."""

    shard: int
    rows_read: int
    rejected: dict[str, int]
    rejects_file: ListedFile | None
    splits: dict[str, ShardSplit]
    packing: dict[str, int] | None = None
    cutting: dict[str, int] | None = None


class Totals(_Section):
    """The sums over all shards."""

    rows_read: int
    rejected: dict[str, int]
    splits: dict[str, SplitCounts]
    packing: dict[str, int] | None = None
    cutting: dict[str, int] | None = None

    @property
    def sequences(self) -> int:
        """The number of documents of all splits."""
        return sum(counts.sequences for counts in self.splits.values())


class TokenizerEntry(_Section):
    """The tokenizer; token ids are below `vocab_size`, `eod` is the id that ends a document."""

    name: str
    sha256: str
    vocab_size: int
    eod: int


class InputShard(_Section):
    """One file of the source."""

    path: str
    rows: int
    bytes: int
    sha256: str


class Input(_Section):
    """The source, with hashes; `dataset` and `license` are its own statements."""

    schema_version: str
    manifest_sha256: str | None = None
    dataset: str | None = None
    license: str | None = None
    shards: tuple[InputShard, ...]


class SplitRule(_Section):
    """How documents were assigned to train and valid, if their ids decide."""

    rule: str
    valid_fraction: int | float
    threshold: str
    repeated_rows: int
    realised_valid_fraction: int | float


class RendererEntry(_Section):
    """The renderer that made the tokens, if rows are rendered."""

    name: str
    version: str
    fallback_rows: int
    audited_rows: int


class Content(_Section):
    """What decides the bytes, and the inventory. `config`: all options of the family that change a byte.

    `files`: files at the root that belong to no shard, such as a tokenizer's.
    """

    family: str
    git_sha: str
    config: dict[str, Any]
    config_sha256: str
    tokenizer: TokenizerEntry
    input: Input
    split: SplitRule | None = None
    renderer: RendererEntry | None = None
    alignment: str
    arrays: dict[str, str]
    span_names: tuple[str, ...]
    totals: Totals
    files: tuple[ListedFile, ...] = ()
    shards: tuple[ShardEntry, ...]

    def as_dict(self) -> dict[str, Any]:
        """The section as JSON, without fields that were never set."""
        return self.model_dump(mode="json", exclude_unset=True)

    @cached_property
    def sha256(self) -> str:
        """sha256 of the canonical JSON: equal for equal datasets."""
        return sha256_json(self.as_dict())

    @property
    def block_size(self) -> int | None:
        """Tokens of each document if packing made all documents blocks of one length; else None.

        Blocks must be read whole: with this `sequence_length`, and without the extra token that Megatron adds.
        """
        size: int | None = self.config.get("block_size")
        return size

    @property
    def harmful(self) -> bool:
        """Whether the documents show what a model must not learn: trainers open them only with `allow_harmful`."""
        return self.config.get("harmful") is True

    @cached_property
    def files_by_path(self) -> Mapping[str, ListedFile]:
        """`listed_files` by their paths."""
        return {file.path: file for file in self.listed_files()}

    def filled(self) -> list[tuple[str, int]]:
        """The splits of shards that have documents, split by split: `("train", 0), ("train", 1), ("valid", 0)`."""
        return [
            (split, shard.shard)
            for split in self.totals.splits
            for shard in self.shards
            if split in shard.splits and shard.splits[split].sequences
        ]

    def listed_files(self) -> Iterator[ListedFile]:
        """Every file in the manifest: first the files of no shard, then shard by shard."""
        yield from self.files
        for shard in self.shards:
            for counts in shard.splits.values():
                yield from counts.files
            if shard.rejects_file is not None:
                yield shard.rejects_file


class Manifest(_Section):
    """A whole manifest."""

    schema_version: str
    content: Content
    environment: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The manifest as JSON, without fields that were never set."""
        return self.model_dump(mode="json", exclude_unset=True)


def new_manifest(content: Content, environment: Mapping[str, Any]) -> Manifest:
    """A manifest of this version."""
    return Manifest(schema_version=SCHEMA_VERSION, content=content, environment=dict(environment))


def schema() -> dict[str, Any]:
    """The JSON Schema of `SCHEMA_VERSION`."""
    return dict(json.loads(files("spanloom.dataset").joinpath(f"{SCHEMA_VERSION}.schema.json").read_bytes()))


def known_families() -> tuple[str, ...]:
    """The values that the schema allows for `family`."""
    return tuple(schema()["properties"]["content"]["properties"]["family"]["enum"])


def check(manifest: Any, where: Path | Uri) -> Manifest:
    """A JSON value → the manifest. Raises ManifestError naming the first place that violates the schema."""
    data = manifest if isinstance(manifest, dict) else {}
    if {"storage", "schema_version"} <= data.keys() and "content" not in data:
        raise ManifestError(
            f"this is a source of conversations, not a dataset (schema_version {_short(repr(data['schema_version']))})",
            where=str(where),
            remedy="`spanloom build --source` makes a dataset of it; give the root of that",
        )
    content = data.get("content")
    version = data.get("schema_version")
    if isinstance(content, dict) and isinstance(family := content.get("family"), str):
        if isinstance(version, str) and version != SCHEMA_VERSION and family not in known_families():
            raise ManifestError(
                f"this is not a token dataset ({SCHEMA_VERSION}): its family is {family!r}, its schema {version!r}",
                where=str(where),
                remedy="`spanloom manifest show` shows what it is; use the commands of its family",
            )
        check_family(family, where)
    check_schema(manifest, SCHEMA_VERSION, schema(), where)
    try:
        validated = Manifest.model_validate(manifest)
    except ValidationError as fault:
        raise _damaged(f"the manifest does not follow {SCHEMA_VERSION}: {_short(str(fault))}", where) from None
    seen: set[str] = set()
    for file in validated.content.listed_files():
        if file.path in seen:
            raise _damaged(f"the manifest lists a file twice: {_short(file.path)}", where)
        seen.add(file.path)
    return validated


def _damaged(what: str, where: Path | Uri) -> ManifestError:
    return ManifestError(what, where=str(where), remedy=_AGAIN)


def _short(message: str) -> str:
    """A message that may quote a value; the middle of a long message is cut out."""
    return message if len(message) <= 300 else f"{message[:150]} … {message[-150:]}"


def check_schema(manifest: Any, version: str, schema: Mapping[str, Any], where: Path | Uri) -> None:
    """Raises ManifestError naming the first place of a JSON value that violates the JSON Schema `version`."""
    import jsonschema  # here, because the import takes 0.04 s, which commands without a manifest need not spend

    errors = sorted(jsonschema.Draft202012Validator(schema).iter_errors(manifest), key=lambda error: list(error.path))
    if errors:
        place = ".".join(map(str, errors[0].absolute_path)) or "(top)"
        raise _damaged(f"the manifest does not follow {version} at {place[:200]}: {_short(errors[0].message)}", where)


def check_family(family: str, where: Path | Uri | None = None) -> None:
    """Raises ManifestError for a family that this version does not know."""
    if family not in (known := known_families()):
        raise ManifestError(
            f"unknown dataset family {_short(repr(family))}; known families are {', '.join(known)}",
            where=None if where is None else str(where),
            remedy="use the version of Spanloom that wrote this dataset, or a newer one",
        )


def read(path: Path) -> Manifest:
    """Reads and checks the manifest in the file `path`, or of the dataset in the folder `path`."""
    return read_as(path, check)


def read_as(path: Path, check: Check[M]) -> M:
    """`read` for a manifest of any schema."""
    file = path / MANIFEST_NAME if path.is_dir() else path
    if file.suffix != ".json" and file.is_file():
        raise ManifestError(
            "this is a file, not a dataset",
            where=str(path),
            remedy="give the root of a dataset; `spanloom convert` and `spanloom build` make one of chat data",
        )
    try:
        return check(read_json(file, ManifestError, "the manifest", _AGAIN), file)
    except FileNotFoundError:
        raise _no_dataset(path, pending=(file.parent / PENDING_NAME).is_file()) from None


def read_remote(place: Uri, check: Check[M]) -> tuple[M, bytes]:
    """The checked manifest in the object `place` (`….json`), or of the dataset at the root `place`; and its bytes."""
    uri = place if place.name.endswith(".json") else place / MANIFEST_NAME
    if (data := read_object(uri)) is None:
        list_objects(place)  # raises if the bucket does not exist
        raise _no_dataset(place, pending=find(place / PENDING_NAME) is not None)
    return check(parse_json(data, ManifestError, "the manifest", str(uri), _AGAIN), uri), data


def read_place_as(place: str, check: Check[M]) -> M:
    """The manifest, of any schema, at a path or URI: of a dataset root, or in a file."""
    return read_remote(parse_uri(place), check)[0] if is_uri(place) else read_as(Path(place), check)


def schema_version_at(place: str) -> str | None:
    """The `schema_version` in the manifest at a root, or in the pending one; None if neither can be read."""
    for name in (MANIFEST_NAME, PENDING_NAME):
        try:
            if is_uri(place):
                uri = parse_uri(place) / name
                whole = parse_json(read_object(uri) or b"", ManifestError, "the manifest", str(uri), _AGAIN)
            else:
                whole = read_json(Path(place) / name, ManifestError, "the manifest", _AGAIN)
            version = whole["schema_version"]
        except (FileNotFoundError, ManifestError, KeyError, TypeError):
            continue  # the error is raised later, by the code that reads the manifest
        if isinstance(version, str):
            return version
    return None


def _no_dataset(where: Path | Uri, *, pending: bool) -> ManifestError:
    below = [str(file.parent) for file in sorted(where.glob(f"*/{MANIFEST_NAME}"))] if isinstance(where, Path) else []
    if isinstance(where, Path) and not where.exists():
        return ManifestError("there is no such folder", where=str(where), remedy="give the root of a dataset")
    return ManifestError(
        f"there is no {MANIFEST_NAME}: this is not a finished dataset"
        + (f" ({PENDING_NAME} is there, so it was built but not validated)" if pending else ""),
        where=str(where),
        remedy="run the command that made it again, or the pipeline's validation step: both promote it when it is clean"
        if pending
        else "give the root of a dataset" + (f": {' or '.join(below[:3])}" if below else ""),
    )


def read_any(root: Path) -> Manifest:
    """The manifest of the dataset at `root`, or the pending one if the dataset is built but not promoted yet."""
    return read_any_as(root, check)


def read_any_as(root: Path, check: Check[M]) -> M:
    """`read_any` for a manifest of any schema."""
    file = manifest_file(root)
    return read_as(root if file.name == MANIFEST_NAME else file, check)


def manifest_file(root: Path) -> Path:
    """Where `read_any` finds the manifest."""
    pending = root / PENDING_NAME
    return pending if pending.is_file() and not (root / MANIFEST_NAME).is_file() else root / MANIFEST_NAME


def as_json(check: Check[object]) -> Check[dict[str, Any]]:
    """The same check, but it returns the manifest as a JSON value."""

    def checked(manifest: Any, where: Path | Uri) -> dict[str, Any]:
        check(manifest, where)
        return dict(manifest)

    return checked


def files_of(content: Mapping[str, Any]) -> Iterator[ListedFile]:
    """Every file in the `content`, a JSON value of any schema: first the files of no shard, then shard by shard."""
    yield from map(ListedFile.model_validate, content.get("files", ()))
    for shard in content["shards"]:
        for counts in shard["splits"].values():
            yield from map(ListedFile.model_validate, counts["files"])
        if shard["rejects_file"] is not None:
            yield ListedFile.model_validate(shard["rejects_file"])


def same_content(manifest: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two manifests, as JSON values, are of the same dataset."""
    return canonical_json(manifest["content"]) == canonical_json(other["content"])


def write_pending(root: Path, manifest: Mapping[str, Any], check: Check[object] = check) -> None:
    """Writes `manifest.pending.json`, create-only; an existing one with equal `content` counts as written.

    Raises ConflictError if a manifest with other `content` exists, pending or promoted.
    """
    check(manifest, root / PENDING_NAME)
    for name in (MANIFEST_NAME, PENDING_NAME):
        if not (root / name).exists():
            continue
        present = read_as(root / name, as_json(check))
        if not same_content(present, manifest):
            raise ConflictError(
                f"a {name} with other content is here already, made {_made(present)}",
                where=str(root),
                remedy="build into another --out, or remove that dataset first",
            )
        if name == PENDING_NAME:
            return
    publish_bytes(readable_json(manifest), root / PENDING_NAME)


def promote(root: Path, check: Check[object] = check, *, environment: Mapping[str, Any] | None = None) -> Path:
    """Turns `manifest.pending.json` into `manifest.json`, create-only. Returns the path of the manifest.

    `environment`: entries to add, such as how the dataset was validated; an existing `manifest.json` stays unchanged.
    Raises ConflictError if it has other `content`.
    """
    pending, final = root / PENDING_NAME, root / MANIFEST_NAME
    if final.exists():
        promoted = read_as(final, as_json(check))
        if not same_content(promoted, read_as(pending, as_json(check))):
            raise ConflictError(f"another {MANIFEST_NAME} is here already, made {_made(promoted)}", where=str(root))
        pending.unlink()
    elif environment:
        written = read_as(pending, as_json(check))
        publish_bytes(readable_json({**written, "environment": {**written["environment"], **environment}}), final)
        pending.unlink()
    else:
        publish(pending, final, sha256_file(pending))
    fsync_directory(root)
    return final


def _made(manifest: Mapping[str, Any]) -> str:
    """Who made a dataset, when and with which code, for the message about a conflict with it."""
    environment = manifest["environment"]
    by = f"by {environment['built_by']} " if "built_by" in environment else ""
    return f"{by}at {environment['created_at']} with git SHA {manifest['content']['git_sha']}"


_NOTHING = object()


def diff(before: Any, after: Any, path: str = "content") -> Iterator[tuple[str, Any, Any]]:
    """Places where two JSON values differ: `(path, before, after)`, with None if one side has no value there.

    Yields nothing exactly if their canonical JSON is equal: 1 and 1.0 differ, and so do null and a missing value.
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
