"""The tool-call family over HTTP: validation of samples, the schema, the registries of tools.

In: the known registries. Out: a router for `spanloom.service.application`, next to those of other families. The service
does not execute, fetch or store anything that a client sends.
"""

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Request
from starlette.responses import Response

from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls.format.schema import sample_schema
from spanloom.families.toolcalls.format.tools import Registries, load_registries
from spanloom.families.toolcalls.report import json_report
from spanloom.families.toolcalls.rules import Rules
from spanloom.families.toolcalls.validation import validate_stream
from spanloom.service.answers import ERRORS_TOLD
from spanloom.service.bodies import check_memory
from spanloom.service.limits import BodyLimit
from spanloom.service.work import worked

MAX_LINES = 200_000
"""The maximum lines of a body, blank ones included. Valid samples reach the limit of bytes first, even the shortest."""

BODY_NAME = "-"
"""The name of the body in a report."""


def body_limits(max_bytes: int = defaults.BODY_MAX_BYTES) -> tuple[BodyLimit, ...]:
    """The limits of the routes' request bodies."""
    return (BodyLimit(path=r"/api/toolcalls/validate/?", max_bytes=max_bytes),)


def toolcalls_router(registries: Registries | None = None) -> APIRouter:
    """Creates the routes. `registries`: by default those of the package."""
    known = load_registries() if registries is None else registries
    router = APIRouter(prefix="/api/toolcalls", tags=["tool calls"])

    @router.post("/validate", openapi_extra=_JSON_LINES, responses=_REFUSALS)
    async def validate(
        request: Request,
        split: Annotated[Literal["harmful", "retain"] | None, Query()] = None,
        strict: Annotated[bool, Query()] = False,
        require_system: Annotated[bool | None, Query()] = None,
    ) -> Response:
        """The report on a body of samples, JSON Lines. Status 200 even with findings; only the first are listed."""
        rules = Rules(
            registries=known,
            split=split,
            require_system=strict if require_system is None else require_system,
            most_findings=ERRORS_TOLD,
        )
        body = await request.body()

        def report() -> dict[str, Any]:
            return json_report(validate_stream(_weighed(body), rules, BODY_NAME), BODY_NAME, strict=strict)

        return await worked(request, lambda: _answer(report()))

    @router.get("/schema")
    def schema() -> dict[str, Any]:
        """The JSON Schema of a sample."""
        return sample_schema()

    @router.get("/registries")
    def registries_list() -> dict[str, list[str]]:
        """The registries that samples may name. For opaque ones only the name is known."""
        return {
            "registries": sorted(known.files),
            "opaque": sorted(name for name, tools in known.known.items() if tools is None),
        }

    @router.get("/registries/{name}", responses={404: {"description": "Unknown."}})
    def registry(name: str) -> Response:
        """One registry with its tools; they are null for an opaque registry."""
        if name not in known.known:
            raise HTTPException(404, detail="No such registry")
        return _answer(known.files.get(name, {"version": name, "tools": None}))

    return router


_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"description": "Too many lines."},
    413: {"description": "Too large."},
}
_JSON_LINES = {"requestBody": {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}, "required": True}}


def _weighed(body: bytes) -> Iterator[bytes]:
    """Yields the lines of a body. Raises HTTPException 400 for too many lines, 413 for a line that needs much memory.

    The estimate also treats strings as JSON, because calls in `assistant_raw` are parsed.
    """
    if (count := body.count(b"\n")) > MAX_LINES:
        raise HTTPException(400, f"The body has {count} lines, more than {MAX_LINES}")
    for line in BytesIO(body):
        check_memory(line, factor=_LINE_FACTOR)
        check_memory(line.replace(b'"', b""), factor=_LINE_FACTOR)
        yield line


_LINE_FACTOR = 20
"""Lower than for other bodies: the faster parser holds its own tree in addition to the values."""


def _answer(value: Any) -> Response:
    return Response(json.dumps(value, ensure_ascii=False).encode(), media_type="application/json")
