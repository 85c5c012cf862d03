"""Access control: a bearer token, or only this machine.

In: a token from a file or an environment variable; the address to listen on. Out: a middleware that compares tokens in
constant time; without a token, one that answers only under this machine's own names; an error if the service would be
reachable by others without a token.
"""

import hmac
import ipaddress
import os
import re
from collections.abc import Collection
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from spanloom.errors import SpanloomError
from spanloom.options.endless import never_ends
from spanloom.service.answers import problem

TOKEN_VARIABLE = "SPANLOOM_SERVICE_TOKEN"
OPEN_PATHS = ("/healthz", "/readyz")
"""Paths of probes, which need no token."""


def read_token(file: Path | None) -> str | None:
    """The token from a file, or else from $SPANLOOM_SERVICE_TOKEN, or None. Raises SpanloomError for an invalid one."""
    if file is None and TOKEN_VARIABLE not in os.environ:
        return None
    remedy = f"give a file with a token alone, or set {TOKEN_VARIABLE}"
    if file is not None and never_ends(file):
        raise SpanloomError("the token cannot be read: it is no regular file", where=str(file), remedy=remedy)
    try:
        token = (os.environ[TOKEN_VARIABLE] if file is None else file.read_text()).strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise SpanloomError(f"the token cannot be read: {fault}", where=str(file), remedy=remedy) from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        where = TOKEN_VARIABLE if file is None else str(file)
        raise SpanloomError("the token is empty, or not of printable ASCII without blanks", where=where, remedy=remedy)
    return token


def check_address(host: str, token: str | None) -> None:
    """Raises SpanloomError if others could reach a service without a token."""
    if token is None and not _is_loopback(host):
        raise SpanloomError(
            f"without a token the service listens on this machine alone, not on {host}: anyone who reaches it could "
            "read, store and delete",
            remedy=f"give --token-file FILE or set {TOKEN_VARIABLE}; or leave --host at 127.0.0.1",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class KnownHosts:
    """The middleware: 403 for a request whose `Host` is neither a name of this machine's loopback nor one of `allowed`.

    The page of another site can let its own host name resolve to 127.0.0.1 (DNS rebinding). Then a browser lets it read
    and write here, and only the name in `Host` reveals it.
    """

    def __init__(self, app: ASGIApp, *, allowed: Collection[str] = ()) -> None:
        self._app, self._allowed = app, {host.lower().rstrip(".") for host in allowed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or not self._is_allowed(hosts[0].decode("latin-1")):
                await problem(403, _UNKNOWN_HOST)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_allowed(self, host: str) -> bool:
        parts = _HOST.fullmatch(host.lower())
        if parts is None:
            return False
        name = (parts["address"] or parts["name"]).rstrip(".")
        return name in self._allowed or _is_loopback(name)


_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^:\[\]@/\\\s]+))(?::[0-9]{1,5})?")
_UNKNOWN_HOST = (
    "This service answers under the names of this machine alone, such as localhost and 127.0.0.1; --allowed-host NAME "
    "adds one"
)


class BearerToken:
    """The middleware: 401 for a request without the token, except on the paths of probes."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app, self._wanted = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            authorization = dict(scope["headers"]).get(b"authorization", b"")
            scheme, _, shown = authorization.partition(b" ")
            if not hmac.compare_digest(shown.strip(), self._wanted) or scheme.lower() != b"bearer":
                answer = problem(401, "A bearer token is needed", {"www-authenticate": "Bearer"})
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
