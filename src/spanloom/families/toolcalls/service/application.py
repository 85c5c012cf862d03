"""The HTTP service with only the routes of the tool-call family.

In: registries, the largest body, a token. Out: the ASGI application. `spanloom traces serve` has these routes too.
"""

from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI

from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls.format.tools import load_registries
from spanloom.families.toolcalls.service.routes import body_limits, toolcalls_router
from spanloom.service.application import GUARDS, Guards, create_application


def toolcalls_application(
    *,
    tools_dir: Path | None = None,
    token: str | None = None,
    max_bytes: int = defaults.BODY_MAX_BYTES,
    guards: Guards = GUARDS,
) -> FastAPI:
    """Creates the application. `tools_dir`: a folder of further registries; `max_bytes`: the largest request body."""
    return create_application(
        title="Spanloom: tool calls",
        version=version("spanloom"),
        routers=[toolcalls_router(load_registries(tools_dir))],
        statuses={},
        ready=lambda: None,
        limits=body_limits(max_bytes),
        token=token,
        guards=guards,
    )
