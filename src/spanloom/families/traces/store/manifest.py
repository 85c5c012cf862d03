"""The manifest of a dataset of traces: what was requested, which traces were chosen, in which order.

In: a finished build, or a file. Out: `TraceManifest`, its file. The format is that of tunix-rt, key for key; it differs
from the manifest of a token dataset.
"""

import json
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spanloom.errors import OptionError
from spanloom.families.traces.errors import InvalidManifestError, UnknownDatasetError
from spanloom.families.traces.store.keys import DATASETS, is_key, manifest_file
from spanloom.families.traces.trace import check_json
from spanloom.storage import read_small, write_atomically

SCHEMA_VERSION = "1.0"
Strategy = Literal["latest", "random"]
_Schema = TypeVar("_Schema", bound=BaseModel)
_REMEDY = "build the dataset again"
MAX_BYTES = 4 << 20
"""Limit for a written manifest; 10,000 ids take 440 KB. `read_small` has its own limit."""


class TraceManifest(BaseModel):
    """The keys in their order. In manifests of others `stats` and `provenance` may lack keys or be absent, and
    `trace_count` may be of more traces than are listed: what counts is `trace_ids`."""

    model_config = ConfigDict(frozen=True)

    dataset_key: str
    build_id: UUID
    dataset_name: str
    dataset_version: str
    dataset_schema_version: str = SCHEMA_VERSION
    created_at: datetime
    filters: dict[str, Any] = Field(default_factory=dict)
    selection_strategy: Strategy
    seed: int | None = None
    trace_ids: list[UUID]
    trace_count: int = Field(ge=0)
    stats: dict[str, Any] = Field(default_factory=dict)
    session_id: str | None = None
    parent_dataset_id: str | None = None
    training_run_id: str | None = None
    provenance: dict[str, Any] = Field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The manifest as JSON; the time ends in `Z`."""
        # Values from a client are already JSON and may be large, so they are not copied.
        plain = self.model_dump(mode="json", exclude={"filters", "provenance"})
        return {name: plain[name] if name in plain else getattr(self, name) for name in type(self).model_fields}

    @property
    def ids(self) -> list[str]:
        """The ids of its traces, in order."""
        return [str(trace_id) for trace_id in self.trace_ids]


def built(manifest: TraceManifest, path: Path) -> dict[str, Any]:
    """The public facts of a build, as JSON."""
    named = {"dataset_key": manifest.dataset_key, "build_id": str(manifest.build_id)}
    return {**named, "trace_count": manifest.trace_count, "manifest_path": str(path)}


class _Ids(BaseModel):
    trace_ids: list[UUID]


def manifest_bytes(manifest: TraceManifest) -> bytes:
    """The bytes of the file: indented by 2, without a final line break. Raises OptionError above `MAX_BYTES`."""
    data = BytesIO()
    # In pieces: `json.dumps` would hold a string for each bracket and comma. Each level adds two blanks per line, so
    # deep values grow a hundredfold.
    for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(manifest.as_dict()):
        data.write(piece.encode())
        if data.tell() > MAX_BYTES:
            raise OptionError(
                f"the manifest would have more than {MAX_BYTES:,} bytes",
                remedy="give smaller filters and provenance, or less deep ones",
            )
    return data.getvalue()  # no copy


def write_manifest(root: Path, manifest: TraceManifest) -> Path:
    """Writes the manifest of a key atomically, replacing an existing one. Returns its path."""
    path = manifest_file(root, manifest.dataset_key)
    write_atomically(path, manifest_bytes(manifest))
    return path


def parse_manifest(data: bytes, where: str) -> TraceManifest:
    """Parses a manifest. Raises InvalidManifestError if it does not follow the schema or holds values beyond JSON."""
    return _parsed(TraceManifest, data, where)


def _parsed(schema: type[_Schema], data: bytes, where: str) -> _Schema:
    try:
        value = json.loads(data)
        for part in value.values() if isinstance(value, dict) else ():
            check_json(part)
        return schema.model_validate(value)
    except ValidationError as fault:
        first = fault.errors(include_url=False, include_context=False, include_input=False)[0]
        detail = f"{'.'.join(map(str, first['loc'])) or 'the manifest'}: {first['msg']}"
    except (ValueError, RecursionError) as fault:
        detail = f"not JSON: {fault or 'nested too deep'}"
    raise InvalidManifestError(f"the manifest does not follow its schema: {detail}", where=where, remedy=_REMEDY)


def load_manifest(path: Path, called: str | None = None) -> TraceManifest:
    """The manifest in a file. Raises FileNotFoundError, or InvalidManifestError for any other content."""
    return parse_manifest(_read(path), called or str(path))


def load_ids(path: Path, called: str | None = None) -> list[str]:
    """The ids in the manifest in a file, in order; only they have to follow the schema. Raises the same errors."""
    return list(map(str, _parsed(_Ids, _read(path), called or str(path)).trace_ids))


def _read(path: Path) -> bytes:
    return read_small(path, InvalidManifestError, "the manifest", _REMEDY)


def read_manifest(root: Path, key: str) -> TraceManifest:
    """The manifest of a key. Raises UnknownDatasetError or InvalidManifestError; creates no file or folder."""
    if is_key(key):
        path = manifest_file(root, key)
        try:
            manifest = load_manifest(path)
        except FileNotFoundError:
            pass
        else:
            if manifest.dataset_key != key:
                raise InvalidManifestError(
                    f"the manifest is of another dataset: {manifest.dataset_key}",
                    where=str(path),
                    remedy="name the folder by the manifest's dataset_key, or build the dataset again",
                )
            return manifest
    raise UnknownDatasetError(
        f"Dataset not found: {key}", where=str(root / DATASETS), remedy="`spanloom traces build` makes one"
    )


def dataset_keys(root: Path) -> list[str]:
    """The names below the root that can be keys, sorted. Does not check that their manifests exist."""
    try:
        return sorted(path.name for path in (root / DATASETS).iterdir() if is_key(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return []
