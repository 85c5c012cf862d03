"""A store's address and certificate: errors that a retry cannot fix are raised at once.

In: an address, the file of CAs that a client is to trust, an error of a client. Out: nothing, or a StorageError that
names the environment variable to set.
"""

import re
import ssl
from pathlib import Path

from spanloom.errors import StorageError
from spanloom.options.endless import never_ends


def check_address(address: str, variable: str, where: str) -> None:
    """Raises StorageError for an address that does not begin with http:// or https:// and a host."""
    if not re.match(r"https?://[^/]", address):
        raise StorageError(
            f"{variable}={address!r} is not the address of a server",
            where=where,
            remedy=f"give it with http:// or https://, such as {variable}=http://{address or 'localhost:9000'}",
        )


def check_ca_file(path: str, variable: str, where: str) -> None:
    """Raises StorageError if the file is missing, cannot be read, or is not PEM with certificates."""
    try:
        if never_ends(Path(path)):
            raise OSError(0, "it is no regular file")
        ssl.create_default_context(cafile=path)
    except OSError as fault:  # also ssl.SSLError
        why = "not PEM with certificates" if isinstance(fault, ssl.SSLError) else fault.strerror
        raise StorageError(
            f"the CA file {path!r} cannot be used: {why}",
            where=where,
            remedy=f"set {variable} to the PEM file of the CA that signed the store's certificate, or unset it",
        ) from fault


def refused_certificate(fault: BaseException) -> str | None:
    """Why a certificate was refused, by a client's error that wraps an error of `ssl`; None for any other error.

    Clients keep the inner error as the cause, the context, or among the arguments (`reason` of urllib3).
    """
    seen: list[BaseException] = []
    waiting: list[object] = [fault]
    while waiting:
        inner = waiting.pop()
        if not isinstance(inner, BaseException) or inner in seen:
            continue
        if isinstance(inner, ssl.SSLCertVerificationError):
            return inner.verify_message or str(inner)
        seen.append(inner)
        waiting += [inner.__cause__, inner.__context__, getattr(inner, "reason", None), *inner.args]
    return None


def untrusted(why: str, variable: str, where: str) -> StorageError:
    """The error for a certificate that was refused."""
    return StorageError(
        f"the store's certificate was refused: {why}",
        where=where,
        remedy=f"set {variable} to the PEM file of the CA that signed it; where a name or a date is wrong, look at the "
        "address and the clock",
    )
