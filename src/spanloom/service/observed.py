"""Observes every request: an id, one line of JSON in the log, counters for Prometheus. No payload, no query.

In: an ASGI application. Out: the same application; `X-Request-Id` on every answer.
"""

import json
import logging
import re
import sys
import time
import traceback
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spanloom.presentable import presentable

LOGGER = "spanloom.service"
REQUEST_ID = "x-request-id"
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the request that is being answered."""


class Metrics:
    """Counters over all requests; `route` is the pattern, never the path."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self.requests = Counter("spanloom_http_requests", "Requests answered.", labels, registry=self.registry)
        self.seconds = Histogram(
            "spanloom_http_request_seconds",
            "From the request's first byte to the answer's last.",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.received = Counter("spanloom_http_received_bytes", "Bytes of bodies read.", registry=self.registry)
        self.sent = Counter("spanloom_http_sent_bytes", "Bytes of bodies sent.", registry=self.registry)
        self.in_flight = Gauge("spanloom_http_in_flight", "Requests under way.", registry=self.registry)
        self.broken = Counter(
            "spanloom_http_broken", "Answers that ended before they were whole.", registry=self.registry
        )


class Observed:
    """The middleware that assigns the id, counts and logs."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics
        self._log = logging.getLogger(LOGGER)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        named = dict(scope["headers"]).get(REQUEST_ID.encode(), b"")
        name = named.decode() if _ID.fullmatch(named) else uuid.uuid4().hex
        request_id.set(name)
        began = time.perf_counter()
        counts = {"received": 0, "sent": 0, "status": 0, "whole": 0}

        async def heard() -> Message:
            message = await receive()
            counts["received"] += len(message.get("body", b""))
            return message

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                counts["status"] = message["status"]
                message["headers"] = [*message.get("headers", ()), (REQUEST_ID.encode(), name.encode())]
            elif message["type"] == "http.response.body":
                counts["sent"] += len(message.get("body", b""))
                counts["whole"] = int(not message.get("more_body", False))
            await send(message)

        self._metrics.in_flight.inc()
        try:
            await self._app(scope, heard, told)
        finally:
            self._metrics.in_flight.dec()
            self._say(scope, name, counts, time.perf_counter() - began)

    def _say(self, scope: Scope, name: str, counts: dict[str, int], seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", None) or getattr(scope.get("route"), "path", "(none)")
        # Invented methods would create unlimited time series.
        method = scope["method"] if scope["method"] in _METHODS else "(other)"
        self._metrics.requests.labels(method, route, str(counts["status"])).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
        self._metrics.received.inc(counts["received"])
        self._metrics.sent.inc(counts["sent"])
        if not counts["whole"]:
            self._metrics.broken.inc()
        self._log.info(
            "request",
            extra={
                "said": {
                    "request_id": name,
                    "method": method,
                    "route": route,
                    "status": counts["status"],
                    "milliseconds": round(1000 * seconds, 2),
                    "received_bytes": counts["received"],
                    "sent_bytes": counts["sent"],
                    "whole": bool(counts["whole"]),
                }
            },
        )


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class JsonLines(logging.Formatter):
    """One line of JSON per record: time, level, logger, message, the values of a request; the traceback of an error."""

    def format(self, record: logging.LogRecord) -> str:
        beside: dict[str, Any] = getattr(record, "said", {})  # the caller's values beside the message
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": presentable(record.getMessage()),
            **{name: presentable(value) if isinstance(value, str) else value for name, value in beside.items()},
        }
        if record.exc_info and record.exc_info[0] is not None:
            # The message of a database error may quote the request: only its type and code locations are logged.
            entry["error"] = record.exc_info[0].__name__
            entry["request_id"] = entry.get("request_id") or request_id.get()
            frames = [*traceback.walk_tb(record.exc_info[2])][-8:]
            entry["places"] = [f"{frame.f_code.co_filename}:{line}" for frame, line in frames]
        return json.dumps(entry)


def log_to_stderr() -> None:
    """Sends all logging of this process to stderr as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
