"""Builds a dataset of traces: selects traces from one snapshot of the store and lists them in a manifest.

In: `BuildRequest`, a store. Out: `datasets/KEY/manifest.json`. Nothing is written if the request is invalid or
selects no trace.
"""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID, uuid4, uuid5

from pydantic import BaseModel, ConfigDict, Field, field_validator

from spanloom.errors import ConflictError, OptionError
from spanloom.families.traces.defaults import LIMIT, STRATEGY
from spanloom.families.traces.errors import TraceError
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.conditions import Conditions
from spanloom.families.traces.store.database import Store, TraceCounts
from spanloom.families.traces.store.keys import dataset_key, manifest_file
from spanloom.families.traces.store.manifest import (
    SCHEMA_VERSION,
    Strategy,
    TraceManifest,
    read_manifest,
    write_manifest,
)
from spanloom.families.traces.store.selection import newest, pool, sampled
from spanloom.families.traces.trace import NAMESPACE, check_json
from spanloom.provenance import canonical_json
from spanloom.storage.folders.repeated import OnSame

SOURCE = "tunix_rt_backend_api"
"""The default `source` in a manifest's provenance. Readers of these manifests know this value."""


class BuildRequest(BaseModel):
    """The request for a dataset. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True)

    dataset_name: Annotated[str, Field(min_length=1, max_length=128)]
    dataset_version: Annotated[str, Field(min_length=1, max_length=64)]
    filters: dict[str, Any] = Field(default_factory=dict)
    limit: Annotated[int, Field(ge=1, le=10_000)] = LIMIT
    selection_strategy: Strategy = STRATEGY
    seed: int | None = None
    session_id: Annotated[str | None, Field(max_length=128)] = None
    parent_dataset_id: Annotated[str | None, Field(max_length=256)] = None
    training_run_id: Annotated[str | None, Field(max_length=128)] = None
    provenance: dict[str, Any] = Field(default_factory=dict)
    where: Annotated[list[str], Field(max_length=20)] = Field(default_factory=list)

    @field_validator("where")
    @classmethod
    def _conditions(cls, value: list[str]) -> list[str]:
        check_json(value)
        Conditions(value)
        return value

    @field_validator("filters", "provenance")
    @classmethod
    def _json(cls, value: dict[str, Any]) -> dict[str, Any]:
        check_json(value)
        return value

    @field_validator("dataset_name", "dataset_version", "session_id", "parent_dataset_id", "training_run_id")
    @classmethod
    def _text(cls, value: str | None) -> str | None:
        check_json(value)
        return value


class EmptyDatasetError(TraceError):
    """No trace passes the filter."""


class MissingSeedError(OptionError):
    """A random selection without a seed."""


def key_of(request: BuildRequest) -> str:
    """The dataset key of a request. Raises MissingSeedError, or OptionError for an invalid key or provenance."""
    if request.selection_strategy == "random" and request.seed is None:
        raise MissingSeedError("Random selection strategy requires a seed for reproducibility", remedy="give a seed")
    if request.where and "where" in request.provenance:
        raise OptionError("the provenance has a key where, which is to hold the conditions", remedy="rename the key")
    return dataset_key(request.dataset_name, request.dataset_version)


def build_dataset(
    store: Store,
    root: Path,
    request: BuildRequest,
    *,
    reproducible: bool = False,
    overwrite: bool = True,
    on_same: OnSame | None = None,
) -> tuple[TraceManifest, Path]:
    """Selects traces and writes the manifest. Returns the manifest and its path.

    `reproducible`: the same store and request give the same bytes, including the build's id and times. Without
    `overwrite`, a manifest with this key that differs in its id and times alone is kept, `on_same` is called, and
    another one is a ConflictError; else it is replaced. Raises MissingSeedError, OptionError (invalid key, provenance
    or manifest size), EmptyDatasetError.
    """
    key = key_of(request)
    # The candidates are closed before the snapshot: unless read to the end, they hold an open cursor.
    with store.snapshot() as snapshot, closing(pool(snapshot, request.filters, request.where)) as candidates:
        if request.selection_strategy == "random":
            assert request.seed is not None, "checked above"
            ids = sampled(candidates, request.limit, request.seed)
        else:
            ids = newest(candidates, request.limit)
        if not ids:
            raise EmptyDatasetError(
                "Dataset is empty. No traces matched the filters.",
                where=store.called,
                remedy="`spanloom traces list` shows what is there; filters compare whole values of meta",
            )
        by_id = snapshot.counts(ids)
        counts = [by_id[trace_id] for trace_id in ids]
    created_at = max(count.created_at for count in counts) if reproducible else timestamps.now()
    manifest = _manifest(request, key, ids, counts, created_at)
    if reproducible:
        manifest = manifest.model_copy(update={"build_id": reproducible_id(manifest)})
    path = manifest_file(root, key)
    if not overwrite and path.exists():
        there = read_manifest(root, key)
        same = there == manifest if reproducible else reproducible_id(there) == reproducible_id(manifest)
        if not same:
            raise ConflictError(
                "this dataset was built with another result",
                where=str(path),
                remedy="replace it with --overwrite, or give another name or version",
            )
        if on_same is not None:
            on_same()
        return there, path
    return manifest, write_manifest(root, manifest)


def _manifest(
    request: BuildRequest, key: str, ids: Sequence[str], counts: Sequence[TraceCounts], created_at: str
) -> TraceManifest:
    provenance = {
        "schema_version": SCHEMA_VERSION,
        "source": SOURCE,
        "build_timestamp": timestamps.exported(created_at),
        "trace_count": len(ids),
        "selection_strategy": request.selection_strategy,
        **({} if request.seed is None else {"seed": request.seed}),
        **({"where": request.where} if request.where else {}),
        **request.provenance,
    }
    return TraceManifest(
        **{**dict(request), "provenance": provenance},  # same field names; a manifest ignores limit and where
        dataset_key=key,
        build_id=uuid4(),
        created_at=timestamps.as_datetime(created_at),
        trace_ids=[UUID(trace_id) for trace_id in ids],
        trace_count=len(ids),
        stats=stats(counts),
    )


def stats(counts: Sequence[TraceCounts]) -> dict[str, Any]:
    """Statistics of one or more traces; averages are not rounded."""
    steps = [count.steps for count in counts]
    return {
        "trace_count": len(counts),
        "avg_step_count": sum(steps) / len(counts),
        "min_step_count": min(steps),
        "max_step_count": max(steps),
        "avg_total_chars": sum(count.chars for count in counts) / len(counts),
    }


def reproducible_id(manifest: TraceManifest) -> UUID:
    """A build id derived from the content of the manifest: everything except the id itself and the two times."""
    content = manifest.as_dict()
    del content["build_id"], content["created_at"]
    content["provenance"] = {name: value for name, value in content["provenance"].items() if name != "build_timestamp"}
    return uuid5(NAMESPACE, canonical_json(content).decode())
