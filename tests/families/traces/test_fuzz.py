"""Requests that Hypothesis makes of the service's own OpenAPI schema: none is answered with a 5xx.

SPANLOOM_FUZZ_REQUESTS says how many (150 in `make test`, 300 nightly; 5,000 were run, see docs/families/traces.md).
"""

import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from spanloom.families.traces.service.application import traces_application
from spanloom.families.traces.store.opening import default_url, open_store
from support.http_service import Service, served
from support.nightly import drawn
from support.traces import JSON, TEXT, payloads

REQUESTS = int(os.environ.get("SPANLOOM_FUZZ_REQUESTS", drawn(300, 150)))
ODD = st.sampled_from(
    ["", "..", "a/b", "%", "\x00", "-1", "1e9", "true", "null", "NaN", "9" * 30, "😀", "zzz", "trace", "latest", "d-1"]
)
SEED = int(os.environ.get("SPANLOOM_FUZZ_SEED", "20261"))
"""Else one run in many stores no trace, and shows nothing of those that do."""
SEEN: dict[int, int] = {}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    root = tmp_path_factory.mktemp("fuzz")
    store = open_store(default_url(root), create=True)
    (root / "ingest").mkdir()
    (root / "ingest/a.jsonl").write_bytes(b"{}\n")
    with served(traces_application(store, root)) as running:
        yield running
    store.close()


@pytest.fixture(scope="module")
def schema(service: Service) -> dict[str, Any]:
    return dict(service.ask("GET", "/openapi.json").json())


def values(said: dict[str, Any], whole: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a schema allows, and now and then others."""
    return st.one_of(_allowed(said, whole), _allowed(said, whole), _allowed(said, whole), JSON)


def _allowed(said: dict[str, Any], whole: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "$ref" in said:
        return _allowed(whole["components"]["schemas"][said["$ref"].rsplit("/", 1)[1]], whole)
    if "anyOf" in said:
        return st.one_of([_allowed(one, whole) for one in said["anyOf"]])
    if "enum" in said:
        return st.sampled_from(said["enum"])
    kind = said.get("type")
    if kind == "object":
        known = {
            name: values(one, whole)
            for name, one in said.get("properties", {}).items()
            if name in said.get("required", ())
        }
        more = {name: values(one, whole) for name, one in said.get("properties", {}).items() if name not in known}
        if not known and not more:
            return st.dictionaries(TEXT, JSON, max_size=3)
        return st.fixed_dictionaries(known, optional=more)
    if kind == "array":
        return st.lists(values(said.get("items", {}), whole), max_size=3)
    if kind == "string":
        return TEXT | ODD | st.uuids().map(str)
    if kind == "integer":
        return st.integers(-3, 12_000) | st.integers()
    if kind == "number":
        return st.floats(allow_nan=False) | st.integers()
    if kind == "boolean":
        return st.booleans()
    return st.none() if kind == "null" else JSON


@st.composite
def requests(draw: st.DrawFn, whole: dict[str, Any]) -> tuple[str, str, bytes | None, dict[str, str]]:
    """Method, URL, body and headers of one request."""
    path = draw(st.sampled_from([*sorted(whole["paths"]), *["/api/traces"] * 4]))  # else few of them store a trace
    method = draw(st.sampled_from(sorted(whole["paths"][path])))
    operation = whole["paths"][path][method]
    url, query = path, []
    for one in operation.get("parameters", ()):
        value = str(draw(_allowed(one["schema"], whole) | ODD))
        if one["in"] == "path":
            url = url.replace(f"{{{one['name']}}}", quote(value, safe="", errors="replace"))
        elif one["in"] == "query" and draw(st.booleans()):
            query.append(f"{one['name']}={quote(value, safe='', errors='replace')}")
    body = None
    if "requestBody" in operation:
        (content,) = operation["requestBody"]["content"].values()
        value = draw(values(content["schema"], whole) | payloads() | st.lists(payloads(), max_size=2))
        body = draw(st.just(json.dumps(value).encode()) | st.just(json.dumps(value).encode()) | st.binary(max_size=50))
    headers = draw(
        st.sampled_from([{}, {}, {"content-type": "text/plain"}, {"if-none-match": '"x", *'}, {"x-request-id": "a b"}])
    )
    return method.upper(), url + ("?" + "&".join(query) if query else ""), body, headers


def test_no_request_is_answered_with_a_5xx(service: Service, schema: dict[str, Any]) -> None:
    @seed(SEED)
    @settings(
        max_examples=REQUESTS,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(requests(schema))
    def ask(request: tuple[str, str, bytes | None, dict[str, str]]) -> None:
        answer = service.ask(*request)
        SEEN[answer.status] = SEEN.get(answer.status, 0) + 1
        assert answer.status < 500, (request, answer.body)
        assert answer.headers["x-request-id"]

    ask()
    print(dict(sorted(SEEN.items())))
    assert {200, 201, 404, 422} <= SEEN.keys()
