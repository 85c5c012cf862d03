"""Work on bodies: in a few threads beside the event loop, with a bound on what waits.

In: a request and a function that parses, checks or stores. Out: its result; 503 with `Retry-After` if too many wait.

Python runs one thread at a time. With as many threads as clients, the event loop gets its turn after all of them, and
`/healthz` waits for seconds. With `THREADS` it waits for that many turns of `SWITCH_SECONDS`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from spanloom.service.bodies import check_memory, is_json, json_value

THREADS = 2
"""Bodies that are worked on at the same time."""

WAITING = 128
"""Bodies that may wait for a thread; with more, a request gets 503."""

SWITCH_SECONDS = 0.0005
"""Of `sys.setswitchinterval` in a process that serves: how long a thread keeps the others waiting."""

Result = TypeVar("Result")
Model = TypeVar("Model", bound=BaseModel)


class Work:
    """The threads of an application, shared by all routes that take bodies."""

    def __init__(self) -> None:
        self._threads = CapacityLimiter(THREADS)
        self._under_way = 0

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """`function(*arguments)` in a thread. Raises HTTPException 503 if `WAITING` others wait."""
        if self._under_way >= THREADS + WAITING:
            raise HTTPException(503, "Too many requests are waiting to be worked on", {"retry-after": "1"})
        self._under_way += 1
        try:
            return await to_thread.run_sync(function, *arguments, limiter=self._threads)
        finally:
            self._under_way -= 1


async def worked(request: Request, function: Callable[..., Result], *arguments: Any) -> Result:
    """`Work.run` of the application that the request came to."""
    work: Work = request.app.state.work
    return await work.run(function, *arguments)


async def with_model(request: Request, model: type[Model], function: Callable[[Model], Result]) -> Result:
    """`function` of a request's body as a model, both in a thread. Raises RequestValidationError if it is not one."""
    body = [await request.body()]
    content_type = request.headers.get("content-type")

    def made() -> Result:
        return function(_model(body, content_type, model))

    return await worked(request, made)


def _model(body: list[bytes], content_type: str | None, model: type[Model]) -> Model:
    """The model of a body. Empties the list that holds the body, to free its memory early."""
    data = body.pop()
    if not data:
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
    check_memory(data)
    value = json_value(data) if is_json(content_type) else data.decode(errors="replace")
    try:
        return model.model_validate(value)
    except ValidationError as fault:
        faults = fault.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in faults]) from None
