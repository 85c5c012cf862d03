"""The service of the traces family: its routes in the application.

In: a store, folders, limits, a token. Out: the ASGI application.
"""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter, FastAPI

from spanloom.errors import OptionError
from spanloom.families.traces.defaults import BATCH_MAX_BYTES, TRACE_BYTES, TRACE_MAX_BYTES
from spanloom.families.traces.service.routes import STATUSES, TraceService, body_limits, traces_router
from spanloom.families.traces.store.database import Store
from spanloom.service.application import GUARDS, Guards, create_application
from spanloom.service.limits import BodyLimit
from spanloom.service.streaming import SEND_SECONDS


def traces_application(
    store: Store,
    root: Path,
    *,
    ingest_dir: Path | None = None,
    token: str | None = None,
    trace_max_bytes: int = TRACE_MAX_BYTES,
    batch_max_bytes: int = BATCH_MAX_BYTES,
    send_seconds: float = SEND_SECONDS,
    guards: Guards = GUARDS,
    more_routers: Sequence[APIRouter] = (),
    more_limits: Sequence[BodyLimit] = (),
) -> FastAPI:
    """The application. `ingest_dir`: default `ROOT/ingest`. `send_seconds`: see `HeldStream`.

    `more_routers`, `more_limits`: those of other families.
    """
    if not TRACE_BYTES[0] <= trace_max_bytes <= TRACE_BYTES[1]:
        raise OptionError(f"a trace's limit is between {TRACE_BYTES[0]} and {TRACE_BYTES[1]} bytes")
    service = TraceService(store=store, root=root, ingest_dir=ingest_dir or root / "ingest", send_seconds=send_seconds)
    return create_application(
        title="Spanloom: reasoning traces",
        version=version("spanloom"),
        routers=[traces_router(service), *more_routers],
        statuses=STATUSES,
        ready=store.check,
        limits=[*body_limits(trace_max_bytes, batch_max_bytes), *more_limits],
        token=token,
        guards=guards,
    )
