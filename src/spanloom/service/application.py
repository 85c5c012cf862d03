"""Combines the routes of families into one ASGI application.

In: routers, HTTP statuses of errors, limits, a token. Out: the application, with the routes of every service:

    /healthz  it runs       /metrics       for Prometheus       /docs          all requests, as a page
    /readyz   it can answer /openapi.json  the same for programs

An error is JSON with `detail`; a browser, which requests HTML, gets a page. A client's mistake is never a 500. A fault
of the service is a 500, without details.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from anyio import CapacityLimiter, fail_after, to_thread
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from spanloom.errors import SpanloomError
from spanloom.report.pages.texts import TextSection, texts_page
from spanloom.service.access import BearerToken, KnownHosts
from spanloom.service.answers import TEXT_TOLD, problem, told_errors
from spanloom.service.defaults import BODIES_MAX_BYTES, BODY_MAX_BYTES, BODY_SECONDS
from spanloom.service.docs_page import docs_page
from spanloom.service.limits import BodyLimit, LimitedBodies
from spanloom.service.observed import LOGGER, Metrics, Observed
from spanloom.service.work import Work

Statuses = Mapping[type[SpanloomError], int]
"""Error class → HTTP status. The first class in an error's MRO that has a status applies."""


@dataclass(frozen=True, kw_only=True)
class Guards:
    """Protects the service from overload and foreign sites.

    allowed_hosts  host names that are answered besides those of loopback, if there is no token
    bodies_bytes   limit for the bodies of all requests under way; beyond it a request gets 503
    body_seconds   time for a body to arrive, plus one second for each 64 KiB
    """

    allowed_hosts: Sequence[str] = ()
    bodies_bytes: int = BODIES_MAX_BYTES
    body_seconds: float = BODY_SECONDS


GUARDS = Guards()
PAGE_METHODS = ["GET", "HEAD"]

READY_SECONDS = 1.75
"""For the answer of `/readyz`: a probe that waits longer than 2 s learns nothing."""


def create_application(
    *,
    title: str,
    version: str,
    routers: Sequence[APIRouter],
    statuses: Statuses,
    ready: Callable[[], None],
    limits: Sequence[BodyLimit] = (),
    token: str | None = None,
    guards: Guards = GUARDS,
) -> FastAPI:
    """Builds the application. `ready` raises a SpanloomError if the service cannot answer now."""
    app = FastAPI(title=title, version=version, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.work = Work()
    metrics = Metrics()
    for router in routers:
        app.include_router(router)
    app.include_router(_own_routes(app, ready, metrics))
    _handle_errors(app, statuses)
    # The middleware added last sees a request first.
    app.add_middleware(
        LimitedBodies,
        limits=limits,
        otherwise=BODY_MAX_BYTES,
        total=guards.bodies_bytes,
        seconds=guards.body_seconds,
    )
    if token is None:
        app.add_middleware(KnownHosts, allowed=guards.allowed_hosts)
    else:
        app.add_middleware(BearerToken, token=token)
    app.add_middleware(Observed, metrics=metrics)
    app.add_middleware(OnePath)
    return app


class OnePath:
    """The middleware that takes `/api/traces/` for `/api/traces`: a redirect would make clients send a body twice, and
    some send a GET after it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/" and scope["path"].endswith("/"):
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        await self._app(scope, receive, send)


def _own_routes(app: FastAPI, ready: Callable[[], None], metrics: Metrics) -> APIRouter:
    router = APIRouter(tags=["service"])
    own_thread = CapacityLimiter(1)  # the threads of requests may all be busy

    @router.head("/healthz", include_in_schema=False)
    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the process runs."""
        return {"status": "ok"}

    @router.head("/readyz", include_in_schema=False)
    @router.get("/readyz", responses={503: {"description": "It could not answer now."}})
    async def readyz() -> Response:
        """Whether what it needs is there."""
        try:
            with fail_after(READY_SECONDS):  # the thread goes on; until it ends, later answers are the same
                await to_thread.run_sync(ready, limiter=own_thread, abandon_on_cancel=True)
        except SpanloomError as fault:
            return problem(503, fault.what)
        except TimeoutError:
            return problem(503, f"what it needs did not answer in {READY_SECONDS:g} s")
        return Response(b'{"status": "ready"}', media_type="application/json")

    @router.api_route("/metrics", methods=PAGE_METHODS, include_in_schema=False)
    async def prometheus() -> Response:
        return Response(generate_latest(metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    @router.api_route("/docs", methods=PAGE_METHODS, include_in_schema=False)
    async def docs() -> HTMLResponse:
        return html(docs_page(app.openapi()))

    return router


def html(page: str, status: int = 200) -> HTMLResponse:
    """A page of `spanloom.report.pages.html`; its content security policy is in its head."""
    return HTMLResponse(page, status, headers={"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"})


def _error_response(request: Request, status: int, detail: Any, headers: Mapping[str, str] | None = None) -> Response:
    """An error for the client. `detail`: text, or the faults of a request."""
    if "text/html" not in request.headers.get("accept", ""):
        return problem(status, detail if isinstance(detail, str) else told_errors(detail), headers)
    if isinstance(detail, str):
        title, texts = detail[:TEXT_TOLD], []
    else:
        title = "Invalid request"
        texts = [(".".join(map(str, error["loc"])), str(error["msg"])) for error in told_errors(detail)]
    section = TextSection(heading=f"{status} {HTTPStatus(status).phrase}", texts=texts, after=_WHERE_NEXT)
    answer = html(texts_page(title, path=[("start", "/"), ("all requests", "/docs")], sections=[section]), status)
    answer.headers.update(headers or {})
    return answer


_WHERE_NEXT = "The start page leads to what is there; all requests are listed with what they take."


def _handle_errors(app: FastAPI, statuses: Statuses) -> None:
    log = logging.getLogger(LOGGER)

    async def refused(request: Request, fault: HTTPException) -> Response:
        return _error_response(request, fault.status_code, fault.detail, fault.headers)

    async def invalid(request: Request, fault: RequestValidationError) -> Response:
        return _error_response(request, 422, fault.errors())

    async def stopped(request: Request, fault: SpanloomError) -> Response:
        status = next((statuses[kind] for kind in type(fault).__mro__ if kind in statuses), 500)
        if status == 500:
            log.error("an error without an HTTP status", exc_info=fault)
            return _error_response(request, 500, "Internal error")
        return _error_response(request, status, fault.what, {"retry-after": "1"} if status == 503 else None)

    async def broken(request: Request, fault: Exception) -> Response:
        log.error("an internal error", exc_info=fault)
        return _error_response(request, 500, "Internal error")

    handlers: dict[type[Exception], Callable[[Request, Any], Awaitable[Response]]] = {
        HTTPException: refused,
        RequestValidationError: invalid,
        SpanloomError: stopped,
        Exception: broken,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
