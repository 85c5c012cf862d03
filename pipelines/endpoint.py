"""Checks that Kubeflow Pipelines answers at an address, before anything is sent there; reads the login from files.

In: an address, headers, a CA file; files with a token or a cookie. Out: the API's answer about its health, or a
SubmitError with the cause and the remedy. One request, without retries.
"""

import json
import re
import ssl
from pathlib import Path
from typing import Any

import certifi
import urllib3

HEALTH = "/apis/v2beta1/healthz"
TIMEOUT = urllib3.Timeout(connect=10, read=30)
LOGIN = (
    "give the login's bearer token with --token-file, or the session cookie of a browser that is logged in with "
    "--cookie-file; or forward the port of the service itself: "
    "kubectl port-forward -n kubeflow svc/ml-pipeline-ui 8080:80"
)


class SubmitError(Exception):
    """The error if a run cannot be created. Its message has the cause and the remedy."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause}\n  remedy: {remedy}")


def file_value(path: Path | None, option: str) -> str | None:
    """The line of text in a file, such as a token; None without a file.

    Raises SubmitError if the file cannot be read, is empty, or has more than one line or control characters.
    """
    if path is None:
        return None
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError as fault:
        raise SubmitError(f"{option} {path}: {fault.strerror}", "name a file that can be read") from fault
    except UnicodeDecodeError as fault:
        raise SubmitError(
            f"{option} {path}: the file is not ASCII text", "put the value alone into the file"
        ) from fault
    if not text or not text.isprintable():
        fault_text = "has more than one line" if text else "is empty"
        raise SubmitError(f"{option} {path}: the file {fault_text}", "put the value alone into the file, on one line")
    return text


def probe(endpoint: str, headers: dict[str, str], ca_file: Path | None) -> dict[str, Any]:
    """Requests the API's health and returns the JSON object of the answer.

    Raises SubmitError for an address without http:// or https://, a CA file that cannot be read, a certificate of an
    unknown CA, no answer, a redirect to a login, a login page, any status but 200, and an answer that is not JSON.
    """
    if not re.match(r"https?://[^/]", endpoint):
        raise SubmitError(
            f"the endpoint {endpoint!r} is not the address of a server",
            f"give it with http:// or https://, such as http://{endpoint.rpartition('://')[2] or 'localhost:8080'}",
        )
    pool = urllib3.PoolManager(timeout=TIMEOUT, retries=False, ssl_context=_tls(ca_file))
    try:
        answer = pool.request("GET", endpoint + HEALTH, headers=headers, redirect=False)
    except urllib3.exceptions.SSLError as fault:
        raise SubmitError(
            f"{endpoint}: TLS failed: {_text(fault)}",
            "name the PEM file of the CA that signed the server's certificate with --ca-file; "
            "a server without TLS has an address with http://",
        ) from fault
    except (urllib3.exceptions.HTTPError, UnicodeError) as fault:
        raise SubmitError(
            f"{endpoint} does not answer: {_text(fault)}",
            "look at the address and the network; a port-forward must still be running",
        ) from fault
    body = answer.data.decode("utf-8", "replace")
    if answer.status != 200:
        raise answer_without_login(endpoint, answer.status, answer.headers.get("Location") or body)
    try:
        health = json.loads(body)
    except (ValueError, RecursionError):
        health = None
    if not isinstance(health, dict):
        raise answer_without_login(endpoint, answer.status, body)
    return health


def answer_without_login(endpoint: str, status: int | None, body: str) -> SubmitError:
    """The error for an answer that is not the API's: a login page, a refusal, a page of another server."""
    excerpt = " ".join(re.sub(r"<[^>]*>", " ", body).split())[:200]
    if status in (401, 403):
        return SubmitError(
            f"{endpoint} refused with HTTP {status}: {excerpt}",
            f"{LOGIN}. With a login, ask for the right to create runs in this --namespace",
        )
    if status is not None and (status == 200 or 300 <= status < 400):
        what = "redirects to" if 300 <= status < 400 else "answered with a page"
        return SubmitError(f"{endpoint} {what}: {excerpt} (HTTP {status}). This is not the API: a login page?", LOGIN)
    return SubmitError(
        f"{endpoint} answered HTTP {status}: {excerpt}",
        "look at --endpoint: the address of Kubeflow Pipelines, with its path (such as /pipeline) where it has one",
    )


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca_file or certifi.where()))  # the same CAs as kfp's client
    except ssl.SSLError as fault:
        raise SubmitError(f"--ca-file {ca_file}: not a PEM file with certificates", "name the CA's PEM file") from fault
    except OSError as fault:
        raise SubmitError(f"--ca-file {ca_file}: {fault.strerror}", "name a file that can be read") from fault


def _text(fault: Exception) -> str:
    return re.sub(r"<urllib3[^>]*>:? ?|HTTPS?Connection\([^)]*\): ?", "", " ".join(str(fault).split()))
