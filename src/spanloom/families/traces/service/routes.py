"""The traces family over HTTP: traces, datasets, exports, and pages to read them.

In: a store, the root of the datasets, the folder of files to ingest. Out: a router for
`spanloom.service.application`. Paths, bodies and answers are the same as in tunix-rt, for routes that it has.

Routes are plain functions and run in threads: reading and writing the store does not block other requests.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from threading import BoundedSemaphore
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, HTTPException, Query, Request
from pydantic import TypeAdapter
from starlette.responses import Response

from spanloom.errors import OptionError, SourceError
from spanloom.families.traces.build import EmptyDatasetError, build_dataset
from spanloom.families.traces.defaults import CONTROL_TOKENS, FORMAT, PROTECT_METADATA
from spanloom.families.traces.errors import (
    InvalidManifestError,
    StoreBusyError,
    StoreError,
    TraceError,
    UnknownDatasetError,
)
from spanloom.families.traces.export.lines import (
    CONTENT_TYPE,
    ControlStringsError,
    ExportFormat,
    ExportOptions,
    check_controls,
    etag,
    export_lines,
)
from spanloom.families.traces.export.training_manifest import TrainingRequest, training_manifest
from spanloom.families.traces.render import ControlTokens
from spanloom.families.traces.service import pages
from spanloom.families.traces.service.requests import (
    IngestRequest,
    ServiceBuildRequest,
    SftExportRequest,
    body_of,
    stored,
    stored_batch,
)
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.catalogue import dataset_list
from spanloom.families.traces.store.database import CONNECTIONS, Snapshot, Store, detail, list_item
from spanloom.families.traces.store.ingest import ingest_file
from spanloom.families.traces.store.manifest import TraceManifest, built, read_manifest
from spanloom.families.traces.store.source import FormChoice
from spanloom.families.traces.trace import check_json, trace_model
from spanloom.service.answers import answer, problem
from spanloom.service.application import PAGE_METHODS, Statuses, html
from spanloom.service.limits import BodyLimit
from spanloom.service.streaming import SEND_SECONDS, HeldStream
from spanloom.service.work import with_model, worked

MAX_PAGE = 100
STREAMS = CONNECTIONS // 2
"""Limit of long exports sent at the same time: each holds a connection to the store until its client has it all."""

WHOLE_BYTES = 1 << 20
"""Exports up to this size are read completely before they are sent, and hold no connection while they are sent."""

_FAR = 2**62
"""The largest offset. No store has so many rows, and databases accept no larger offset."""

STATUSES: Statuses = {
    StoreBusyError: 503,
    StoreError: 503,
    UnknownDatasetError: 404,
    InvalidManifestError: 409,
    EmptyDatasetError: 422,
    ControlStringsError: 422,
    OptionError: 422,
    TraceError: 400,
    SourceError: 400,
}


@dataclass(frozen=True, kw_only=True)
class TraceService:
    """The state shared by the routes.

    root          the root of the datasets
    ingest_dir    only files below it are ingested
    send_seconds  how long an export waits for a client that reads nothing
    """

    store: Store
    root: Path
    ingest_dir: Path
    send_seconds: float = SEND_SECONDS
    streams: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(STREAMS))


def body_limits(trace_bytes: int, batch_bytes: int) -> tuple[BodyLimit, ...]:
    """The limits of request bodies, by route."""
    return (
        BodyLimit(path=r"/api/traces/batch/?", max_bytes=batch_bytes),
        BodyLimit(path=r"/api/traces/?", max_bytes=trace_bytes),
    )


def traces_router(service: TraceService) -> APIRouter:
    """The routes."""
    router = APIRouter()
    _add_traces(router, service)
    _add_datasets(router, service)
    _add_exports(router, service)
    _add_pages(router, service)
    return router


# --- Traces -----------------------------------------------------------------------------------------------------------


def _add_traces(router: APIRouter, service: TraceService) -> None:
    tags: list[Any] = ["traces"]
    model = trace_model(service.store.max_step_characters)

    @router.get("/api/health", tags=["service"])
    async def health() -> dict[str, str]:
        """Whether the process runs."""
        return {"status": "healthy"}

    @router.post(
        "/api/traces",
        status_code=201,
        tags=tags,
        responses={413: {"description": "Too large."}, 422: {"description": "No trace."}},
        openapi_extra=body_of(TypeAdapter(model)),
    )
    async def create_trace(request: Request) -> Response:
        """Store a trace under a new id."""
        (added,) = await worked(request, stored, service.store, [await request.body()], request.headers)
        return answer(list_item(added), 201)

    @router.post(
        "/api/traces/batch",
        status_code=201,
        tags=tags,
        responses={
            400: {"description": "No traces, or too many."},
            413: {"description": "Too large."},
            422: {"description": "One that is no trace."},
        },
        openapi_extra=body_of(TypeAdapter(list[model])),  # type: ignore[valid-type]
    )
    async def create_traces(request: Request) -> Response:
        """Store up to 1000 traces, all or none."""

        def answered(body: list[bytes]) -> Response:
            created = list(map(list_item, stored_batch(service.store, body, request.headers)))
            return answer({"created_count": len(created), "traces": created}, 201)

        return await worked(request, answered, [await request.body()])

    @router.get("/api/traces", tags=tags)
    def list_traces(limit: int = 20, offset: int = 0) -> Response:
        """A page of all traces, newest first."""
        if not 1 <= limit <= MAX_PAGE:
            return problem(422, f"limit must be between 1 and {MAX_PAGE}")
        if offset < 0:
            return problem(422, "offset must be non-negative")
        with service.store.snapshot() as snapshot:
            heads = snapshot.heads(limit=limit + 1, offset=min(offset, _FAR))
        more = len(heads) > limit
        pagination = {"limit": limit, "offset": offset, "next_offset": offset + limit if more else None}
        return answer({"data": [list_item(head) for head in heads[:limit]], "pagination": pagination})

    @router.get("/api/traces/{trace_id}", tags=tags, responses={404: {"description": "Unknown."}})
    def get_trace(trace_id: UUID) -> Response:
        """A trace with its payload."""
        with service.store.snapshot() as snapshot:
            trace = snapshot.get(str(trace_id))
        return problem(404, f"Trace {trace_id} not found") if trace is None else answer(detail(trace))

    @router.delete("/api/traces/{trace_id}", status_code=204, tags=tags, responses={404: {"description": "Unknown."}})
    def delete_trace(trace_id: UUID) -> Response:
        """Delete a trace. Manifests keep its id; exports have no line for it any more."""
        with service.store.writing() as writer:
            gone = writer.delete([str(trace_id)])
        return Response(status_code=204) if gone else problem(404, f"Trace {trace_id} not found")


# --- Datasets ---------------------------------------------------------------------------------------------------------


def _add_datasets(router: APIRouter, service: TraceService) -> None:
    tags: list[Any] = ["datasets"]

    def made(wanted: ServiceBuildRequest) -> Response:
        manifest, path = build_dataset(service.store, service.root, wanted, reproducible=wanted.reproducible)
        return answer(built(manifest, path), 201)

    @router.post(
        "/api/datasets/build", status_code=201, tags=tags, openapi_extra=body_of(TypeAdapter(ServiceBuildRequest))
    )
    async def build(request: Request) -> Response:
        """Freeze a selection of the store in a manifest, in place of one of the same key."""
        return await with_model(request, ServiceBuildRequest, made)

    def ingested(wanted: IngestRequest) -> Response:
        path = _ingestible(service.ingest_dir, wanted.path)
        began = None if wanted.created_at is None else timestamps.given(wanted.created_at)
        counts = ingest_file(
            service.store,
            path,
            source_name=wanted.source_name,
            ids=wanted.ids,
            strict=wanted.strict,
            created_at=began,
            choice=FormChoice(form=None if wanted.map is None else wanted.map.form(), recognise=wanted.recognise),
            called=wanted.path,
        )
        of_others = wanted.recognise or wanted.map is not None
        return answer(counts.as_dict() | ({"left_out": dict(counts.left_out)} if of_others else {}), 201)

    @router.post(
        "/api/datasets/ingest",
        status_code=201,
        tags=tags,
        responses={400: {"description": "No such file below the ingest directory, or no valid trace in it."}},
        openapi_extra=body_of(TypeAdapter(IngestRequest)),
    )
    async def ingest(request: Request) -> Response:
        """Store the traces of a file below the service's ingest directory; with `recognise` or `map` data of others."""
        return await with_model(request, IngestRequest, ingested)

    @router.get("/api/datasets", tags=tags)
    def list_datasets() -> Response:
        """The keys of all datasets, with their counts."""
        return answer({"data": dataset_list(service.root)})

    @router.get(
        "/api/datasets/{dataset_key}/manifest",
        tags=tags,
        responses={404: {"description": "Unknown."}, 409: {"description": "The manifest breaks its schema."}},
    )
    def get_manifest(dataset_key: str) -> Response:
        """The manifest of a dataset."""
        return answer(_manifest(service, dataset_key).as_dict())


def _ingestible(directory: Path, name: str) -> Path:
    """The file that a client named. Raises HTTPException 400 if it is missing or outside the ingest directory."""
    missing = HTTPException(400, f"JSONL file not found: {name}")
    try:
        path = (directory / name).resolve()  # links are resolved: their target must be inside
        if not path.is_relative_to(directory.resolve()) or not path.exists():
            raise missing
        if not path.is_file():
            raise HTTPException(400, f"Path is not a file: {name}")
    except (OSError, ValueError, RuntimeError):  # U+0000, a name that is too long, circular links
        raise missing from None
    return path


def _manifest(service: TraceService, key: str) -> TraceManifest:
    try:
        return read_manifest(service.root, key)
    except InvalidManifestError:
        raise InvalidManifestError(f"Manifest invalid: {key}") from None


# --- Exports ----------------------------------------------------------------------------------------------------------


def _add_exports(router: APIRouter, service: TraceService) -> None:
    stream: dict[int | str, dict[str, Any]] = {
        200: {"description": "JSON Lines.", "content": {CONTENT_TYPE: {}}},
        304: {"description": "The client has it."},
        404: {"description": "Unknown."},
        409: {"description": "The manifest breaks its schema."},
    }

    @router.head("/api/datasets/{dataset_key}/export.jsonl", include_in_schema=False)
    @router.get("/api/datasets/{dataset_key}/export.jsonl", tags=["exports"], responses=stream)
    def export(
        dataset_key: str,
        format: ExportFormat = FORMAT,
        protect_metadata: bool = PROTECT_METADATA,
        control_tokens: ControlTokens = CONTROL_TOKENS,
        sort_steps: bool = False,
        system: Annotated[str | None, Query(max_length=50_000)] = None,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """A dataset as JSON Lines, streamed; traces deleted since have no line."""
        manifest = _manifest(service, dataset_key)
        check_json(system)
        options = ExportOptions(
            protect_metadata=protect_metadata,
            control_tokens=control_tokens,
            sort_steps=sort_steps,
            system=system or None,
        )
        return _stream(service, manifest.ids, format, options, manifest.build_id, if_none_match)

    @router.post(
        "/api/tunix/sft/export",
        tags=["exports"],
        responses={**stream, 400: {"description": "Neither a key nor ids, or an invalid id."}},
        openapi_extra=body_of(TypeAdapter(SftExportRequest)),
    )
    async def sft_export(request: Request) -> Response:
        """Traces in Gemma's template, of a dataset or by id, in the order of the request."""
        return await with_model(request, SftExportRequest, exported)

    def exported(wanted: SftExportRequest) -> Response:
        export_fields = wanted.model_dump(include={field.name for field in fields(ExportOptions)})
        options = ExportOptions(**{**export_fields, "system": wanted.system or None})
        if wanted.dataset_key:
            try:
                manifest = _manifest(service, wanted.dataset_key)
            except UnknownDatasetError:
                return problem(404, f"Manifest not found for dataset: {wanted.dataset_key}")
            return _stream(service, manifest.ids, "tunix_sft", options, manifest.build_id)
        if not wanted.trace_ids:
            return problem(400, "Either dataset_key or trace_ids must be provided")
        try:
            ids = [str(UUID(text.strip())) for text in wanted.trace_ids]
        except ValueError as fault:
            return problem(400, str(fault))
        return _stream(service, ids, "tunix_sft", options)

    @router.post(
        "/api/tunix/sft/manifest",
        status_code=201,
        tags=["exports"],
        openapi_extra=body_of(TypeAdapter(TrainingRequest)),
    )
    async def sft_manifest(request: Request) -> Response:
        """The YAML that Tunix takes for a run on a dataset."""
        return await with_model(request, TrainingRequest, trained)

    def trained(wanted: TrainingRequest) -> Response:
        _manifest(service, wanted.dataset_key)
        return answer(training_manifest(wanted), 201)


def _stream(
    service: TraceService,
    ids: Sequence[str],
    form: ExportFormat,
    options: ExportOptions,
    build_id: UUID | None = None,
    known: str | None = None,
) -> Response:
    """The lines of these traces from one snapshot of the store, which is held until they are sent.

    Raises StoreBusyError if `STREAMS` long exports are being sent: the other connections are for other requests.
    """
    with ExitStack() as stack:
        snapshot = stack.enter_context(service.store.snapshot())
        if options.control_tokens == "reject":
            check_controls(snapshot, ids)
        created_by_id = snapshot.present(ids)
        present = [trace_id for trace_id in ids if trace_id in created_by_id]
        headers = {"x-skipped-deleted": str(len(ids) - len(present))}
        if build_id is not None:
            headers["etag"] = (
                f'"{etag(build_id, form, options, [(trace_id, created_by_id[trace_id]) for trace_id in present])}"'
            )
            if known is not None and not {headers["etag"], "*"}.isdisjoint(
                trace_id.strip().removeprefix("W/") for trace_id in known.split(",")
            ):
                return Response(status_code=304, headers=headers)
        lines = _lines(snapshot, present, form, options)
        begin = bytearray()
        for line in lines:
            begin += line
            if len(begin) > WHOLE_BYTES:
                break
        else:
            return Response(bytes(begin), headers={**headers, "content-type": CONTENT_TYPE})
        if not service.streams.acquire(blocking=False):
            raise StoreBusyError("too many exports are being sent", remedy="try again, or with fewer clients at once")
        stack.callback(service.streams.release)
        return HeldStream(
            chain([bytes(begin)], lines),
            stack.pop_all(),
            headers=headers,
            media_type=CONTENT_TYPE,
            send_seconds=service.send_seconds,
        )


def _lines(snapshot: Snapshot, ids: Sequence[str], form: ExportFormat, options: ExportOptions) -> Iterator[bytes]:
    """The lines of an export. Raises if one is missing: the answer must match its header."""
    count = 0
    for line in export_lines(snapshot, ids, form, options):
        count += 1
        yield line
    if count != len(ids):
        raise StoreError("the store changed while an export was read from it")


# --- Pages ------------------------------------------------------------------------------------------------------------


def _add_pages(router: APIRouter, service: TraceService) -> None:
    @router.api_route("/", methods=PAGE_METHODS, include_in_schema=False)
    def datasets_page(offset: Annotated[int, Query(ge=0)] = 0) -> Response:
        with service.store.snapshot() as snapshot:
            total = snapshot.count()
            first = min(offset, total)
            shown = snapshot.previews(limit=pages.SHOWN, offset=first)
        return html(pages.datasets_page(dataset_list(service.root), shown, total, first))

    @router.api_route("/datasets/{dataset_key}", methods=PAGE_METHODS, include_in_schema=False)
    def dataset_page(dataset_key: str, offset: int = 0) -> Response:
        try:
            manifest = _manifest(service, dataset_key)
        except (UnknownDatasetError, InvalidManifestError) as fault:
            return html(pages.missing_page(fault.what), STATUSES[type(fault)])
        first = max(0, min(offset, len(manifest.trace_ids)))
        shown = manifest.ids[first : first + pages.SHOWN]
        with service.store.snapshot() as snapshot:
            counts = snapshot.counts(shown)
        return html(pages.dataset_page(manifest, shown, counts, first))

    @router.api_route("/traces/{trace_id}", methods=PAGE_METHODS, include_in_schema=False)
    def trace_page(trace_id: UUID) -> Response:
        with service.store.snapshot() as snapshot:
            trace = snapshot.get(str(trace_id))
        if trace is None:
            return html(pages.missing_page(f"Trace {trace_id} not found"), 404)
        return html(pages.trace_page(trace))
