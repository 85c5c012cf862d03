"""The validator over HTTP: reports, limits, queries, the schema, the registries."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from families.toolcalls.conftest import values
from spanloom.families.toolcalls.format.schema import sample_schema
from spanloom.families.toolcalls.report import json_report
from spanloom.families.toolcalls.rules import Rules
from spanloom.families.toolcalls.service.application import toolcalls_application
from spanloom.families.toolcalls.service.routes import body_limits, toolcalls_router
from spanloom.families.toolcalls.validation import validate_stream
from spanloom.families.traces.service.application import traces_application
from spanloom.families.traces.store.opening import default_url, open_store
from support.http_service import Service, served
from support.toolcall_samples import harmful, retain

LIMIT = 100_000


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with served(toolcalls_application(max_bytes=LIMIT)) as running:
        yield running


def body(*samples: object) -> bytes:
    return b"".join(json.dumps(sample).encode() + b"\n" for sample in samples)


def test_a_report_whatever_the_findings(service: Service) -> None:
    sent = body(harmful(1), retain(1), harmful(1, tools=None)) + b"{\n\xff\n"
    for query, rules in (("", Rules()), ("?split=harmful&strict=true", Rules(split="harmful", require_system=True))):
        answer = service.ask("POST", f"/api/toolcalls/validate{query}", body=sent)
        assert answer.status == 200
        wanted = json_report(validate_stream(sent.split(b"\n"), rules), "-", strict=bool(query))
        assert json.loads(answer.body) == json.loads(json.dumps(wanted))
        assert wanted["exit_code"] == (4 if query else 0)


def test_an_empty_body_has_no_samples(service: Service) -> None:
    assert json.loads(service.ask("POST", "/api/toolcalls/validate", body=b"").body)["total_samples"] == 0


def test_a_body_above_the_limit_is_refused(service: Service) -> None:
    assert service.ask("POST", "/api/toolcalls/validate", body=b" " * LIMIT).status == 200
    assert service.ask("POST", "/api/toolcalls/validate", body=b" " * (LIMIT + 1)).status == 413


@pytest.mark.parametrize("query", ["split=other", "strict=perhaps"])
def test_a_query_that_makes_no_sense(service: Service, query: str) -> None:
    assert service.ask("POST", f"/api/toolcalls/validate?{query}", body=b"").status == 422


def test_schema_and_registries(service: Service, toolcall_cases: Path) -> None:
    assert json.loads(service.ask("GET", "/api/toolcalls/schema").body) == sample_schema()
    named = json.loads(service.ask("GET", "/api/toolcalls/registries").body)
    assert named == {
        "registries": ["b4_standard_v1", "llmail_inject_v1"],
        "opaque": ["agentdojo_native", "tau2_native"],
    }
    for name in named["registries"]:
        found = json.loads(service.ask("GET", f"/api/toolcalls/registries/{name}").body)
        assert found == values(toolcall_cases / f"registries/{name}.json")
    opaque = service.ask("GET", "/api/toolcalls/registries/tau2_native")
    assert json.loads(opaque.body) == {"version": "tau2_native", "tools": None}
    assert service.ask("GET", "/api/toolcalls/registries/other").status == 404
    assert service.ask("GET", "/api/toolcalls/registries/..%2Fschema").status == 404


def test_the_routes_stand_beside_those_of_traces(tmp_path: Path) -> None:
    store = open_store(default_url(tmp_path), create=True)
    application = traces_application(
        store, tmp_path, more_routers=[toolcalls_router()], more_limits=body_limits(LIMIT), token="secret"
    )
    with served(application) as running:
        assert running.ask("GET", "/api/toolcalls/schema").status == 401
        headers = {"authorization": "Bearer secret"}
        assert running.ask("GET", "/api/toolcalls/schema", headers=headers).status == 200
        big = running.ask("POST", "/api/toolcalls/validate", body=b" " * (LIMIT + 1), headers=headers)
        assert big.status == 413
        assert running.ask("GET", "/api/traces", headers=headers).status == 200
    store.close()


def test_few_findings_are_listed_and_all_are_counted(service: Service) -> None:
    sent = b"{}\n" * 30 + b"0\n" * 5 + body(harmful(1, messages=[0] * 50))
    whole = json_report(validate_stream(sent.split(b"\n"), Rules()), "-", strict=False)
    report = json.loads(service.ask("POST", "/api/toolcalls/validate", body=sent).body)
    assert report.pop("more_findings") == len(whole["findings"]) - 20
    assert report.pop("findings") == whole.pop("findings")[:20]
    assert report == json.loads(json.dumps(whole))


def test_lines_have_a_limit(service: Service) -> None:
    assert service.ask("POST", "/api/toolcalls/validate", body=b"\n" * (LIMIT - 1)).status == 200
    application = toolcalls_application()
    with served(application) as running:
        answer = running.ask("POST", "/api/toolcalls/validate", body=b"\n" * 200_001)
    assert (answer.status, answer.json()) == (400, {"detail": "The body has 200001 lines, more than 200000"})
