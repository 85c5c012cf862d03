"""The service: every recorded request, on both stores; what no request may do."""

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spanloom.families.traces.build import BuildRequest, build_dataset
from spanloom.families.traces.service.application import traces_application
from spanloom.families.traces.store.database import Store
from spanloom.families.traces.store.opening import default_url, open_store
from support.each import each
from support.http_service import Answer, Service, served
from support.traces import CASES, read_json, store_rows

HTTP = CASES / "fixtures/http_cases.json"
RECORDED = {case["case"]: case for case in read_json(HTTP)}
PAGES = [
    name for name, case in RECORDED.items() if isinstance(case.get("response"), dict) and "data" in case["response"]
]
DELETED = ("t29_deleted_a", "t07_meta_null", "t30_deleted_b")
BASE: dict[str, Any] = {
    "trace_version": "1.0",
    "prompt": "What is 15 + 27?",
    "final_answer": "42",
    "steps": [
        {"i": 0, "type": "reasoning", "content": "Parse the addition problem"},
        {"i": 1, "type": "reasoning", "content": "Add 15 and 27"},
    ],
    "meta": {"source": "ungar"},
}


def _steps(count: int) -> list[dict[str, Any]]:
    return [{"i": i, "type": "t", "content": "c"} for i in range(count)]


GENERATED: dict[str, Callable[[], Any]] = {
    "prompt one too long": lambda: {**BASE, "prompt": "x" * 50_001},
    "prompt at the limit": lambda: {**BASE, "prompt": "x" * 50_000},
    "prompt at the maximum": lambda: {**BASE, "prompt": "x" * 50_000},
    "step one too long": lambda: {**BASE, "steps": [{**BASE["steps"][0], "content": "x" * 20_001}, BASE["steps"][1]]},
    "step at the limit": lambda: {**BASE, "steps": [{**BASE["steps"][0], "content": "x" * 20_000}, BASE["steps"][1]]},
    "1001 steps": lambda: {**BASE, "steps": _steps(1001)},
    "1000 steps": lambda: {**BASE, "steps": _steps(1000)},
    "1001 traces": lambda: [BASE] * 1001,
    "1000 traces": lambda: [BASE] * 1000,
}


ONE_STORE = pytest.mark.parametrize("root", ["sqlite"], indirect=True, scope="module")
"""For what is decided before a store is asked, or from its answer alone: one kind of store is enough."""


@pytest.fixture(params=["sqlite", "postgresql"], scope="module")
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp(request.param)
    url = default_url(path) if request.param == "sqlite" else request.getfixturevalue("postgres").database()
    (path / "url").write_text(url)
    return path


@pytest.fixture(scope="module")
def service(root: Path, case_rows: list[dict[str, Any]], trace_cases: Path) -> Iterator[Service]:
    """A service over the recorded store: the datasets were built before three traces were deleted."""
    store = open_store((root / "url").read_text(), create=True)
    store_rows(store, case_rows)
    for case in read_json(trace_cases / "fixtures/builds.json"):
        if case["status"] == 201:
            build_dataset(store, root, BuildRequest.model_validate(case["request"]))
    _delete(store, case_rows)
    (root / "datasets/dev-reasoning-v2").mkdir()
    broken = {**read_json(trace_cases / "fixtures/validate/manifest_all.json"), "selection_strategy": "static"}
    (root / "datasets/dev-reasoning-v2/manifest.json").write_text(json.dumps({**broken, "build_id": "no UUID"}))
    shutil.copytree(trace_cases / "fixtures/ingest", root / "ingest")
    with served(traces_application(store, root)) as running:
        yield running
    store.close()


def _delete(store: Store, rows: list[dict[str, Any]]) -> None:
    with store.writing() as writer:
        writer.delete([row["id"] for row in rows if row["case"] in DELETED])


def _ask(service: Service, case: dict[str, Any]) -> Answer:
    body: Any = case.get("request_body", "").encode() or None
    if body == b"<stream>":
        body = iter([b'{"prompt": "', *[b"x" * 65_536] * 32, b'"}'])
    elif "request_json" in case:
        body = case["request_json"]
        if isinstance(body, dict) and "<generated>" in body:
            if body["<generated>"] in GENERATED:
                body = GENERATED[body["<generated>"]]()
            elif case["status"] == 413:
                body = json.dumps(BASE).encode().ljust(body["bytes"])
            else:
                pytest.skip(f"how the body of {body['<generated>']!r} is made is not known here")
    return service.ask(case["method"], case["url"], body, case.get("headers"))


@each("name", [name for name in sorted(RECORDED) if name not in PAGES])
def test_recorded_requests(service: Service, root: Path, decisions: dict[str, Any], name: str) -> None:
    """A page of the list depends on what was posted before: test_recorded_pages_of_the_list has those."""
    case, decision = RECORDED[name], decisions.get(name, {})
    before = sorted((root / "datasets").iterdir())
    answer = _ask(service, case)
    assert answer.status == decision.get("expect_status", case["status"]), answer.body[:500]
    if not case["url"].endswith("/build"):
        assert sorted((root / "datasets").iterdir()) == before
    if decision and case["status"] != answer.status:
        assert answer.json()["detail"]
        return
    assert answer.headers["content-type"] == case["content_type"]
    response = case.get("response")
    if response is None:
        made = {"created_count", "traces"} if case["url"].endswith("/batch") else {"id", "created_at", "trace_version"}
        assert set(answer.json()) == made
    elif isinstance(response, str):
        assert answer.body.decode() == response
    elif "detail_locs" in response:
        if name not in decisions:  # there the place may be another one
            assert [one["loc"] for one in answer.json()["detail"]] == response["detail_locs"]
            assert [one["type"] for one in answer.json()["detail"]] == response["detail_types"]
    else:
        assert _without(answer.json(), response) == response


def _without(found: Any, recorded: Any) -> Any:
    """What was found, where it is recorded as varying written so."""
    if isinstance(found, dict) and isinstance(recorded, dict):
        return {key: _without(value, recorded.get(key)) for key, value in found.items()}
    if isinstance(found, list) and isinstance(recorded, list) and len(found) == len(recorded):
        return [_without(one, other) for one, other in zip(found, recorded, strict=True)]
    return "<varies>" if recorded == "<varies>" else found


@each("name", PAGES)
def test_recorded_pages_of_the_list(service: Service, case_rows: list[dict[str, Any]], name: str) -> None:
    """Those of its traces that are not deleted, at the place where they stand here: others were posted meanwhile."""
    kept = {row["id"] for row in case_rows if row["case"] not in DELETED}
    recorded = RECORDED[name]["response"]
    wanted = [one for one in recorded["data"] if one["id"] in kept]
    everything = service.ask("GET", "/api/traces?limit=100").json()["data"]
    offset = [one["id"] for one in everything].index(wanted[0]["id"])
    limit = len(wanted)
    page = service.ask("GET", f"/api/traces?limit={limit}&offset={offset}").json()
    more = None if recorded["pagination"]["next_offset"] is None else offset + limit
    assert page == {"data": wanted, "pagination": {"limit": limit, "offset": offset, "next_offset": more}}


def test_pages_of_the_list(service: Service) -> None:
    everything = service.ask("GET", "/api/traces?limit=100").json()["data"]
    last = service.ask("GET", f"/api/traces?limit=100&offset={len(everything) - 1}").json()
    assert last["pagination"]["next_offset"] is None
    assert service.ask("GET", f"/api/traces?offset={10**30}").json()["data"] == []
    assert service.ask("GET", "/api/traces?offset=-1").json() == {"detail": "offset must be non-negative"}


def test_recorded_exports(service: Service, trace_cases: Path) -> None:
    for case in read_json(trace_cases / "fixtures/exports/index.json"):
        url = f"/api/datasets/{case['dataset_key']}/export.jsonl?format={case['format']}"
        answer = service.ask("GET", f"{url}&protect_metadata=false")
        assert answer.status == 200
        assert answer.headers["content-type"] == case["content_type"]
        assert answer.headers["x-skipped-deleted"] == str(case["skipped_deleted"])
        assert answer.body == (trace_cases / "fixtures" / case["file"]).read_bytes()
        tag = answer.headers["etag"]
        again = service.ask("GET", f"{url}&protect_metadata=false", headers={"if-none-match": tag})
        assert (again.status, again.body) == (304, b"")
        assert service.ask("GET", url).headers["etag"] != tag


def test_recorded_builds(service: Service, root: Path, trace_cases: Path, decisions: dict[str, Any]) -> None:
    for case in read_json(trace_cases / "fixtures/builds.json"):
        answer = service.ask("POST", "/api/datasets/build", case["request"])
        wanted = decisions.get(case["case"], {}).get("expect_status", case["status"])
        assert answer.status == wanted, (case["case"], answer.body)
        if wanted == 422:
            response = case["response"]
            if "detail" in response:
                assert answer.json() == response
            else:
                assert [one["loc"] for one in answer.json()["detail"]] == response["detail_locs"]
                assert [one["type"] for one in answer.json()["detail"]] == response["detail_types"]
        elif case["status"] == 201:
            said = answer.json()
            assert list(said) == list(case["response"])
            assert said["dataset_key"] == case["response"]["dataset_key"]
            assert said["manifest_path"] == case["response"]["manifest_path"].replace("<root>", f"{root}/datasets")
            shown = service.ask("GET", f"/api/datasets/{_quoted(said['dataset_key'])}/manifest").json()
            assert shown["build_id"] == said["build_id"]
    # The datasets of the other tests are built anew from what is left: put the first ones back.
    assert {one["dataset_key"] for one in service.ask("GET", "/api/datasets").json()["data"]} >= {"all-v1", "one-v1"}


def _quoted(key: str) -> str:
    from urllib.parse import quote

    return quote(key)


def test_recorded_ingests(service: Service, root: Path, trace_cases: Path, decisions: dict[str, Any]) -> None:
    folder = root / "ingest"
    for case in read_json(trace_cases / "fixtures/ingest/expected.json"):
        name = case["file"]
        if name in ("limit_1001.jsonl", "latin1.jsonl"):
            continue  # no cap, and a byte that is no UTF-8 costs its line alone: test_ingest has them
        body = {"path": f"{folder}/{name}".removesuffix("/."), "source_name": "import_test", "ids": "random"}
        answer = service.ask("POST", "/api/datasets/ingest", body)
        assert answer.status == case["status"], (name, answer.body)
        if answer.status == 201:
            wanted = decisions.get(f"ingest:{name}", {}).get("expect_ingested", case["ingested_count"])
            assert answer.json()["ingested_count"] == len(answer.json()["trace_ids"]) == wanted
        else:
            assert answer.json()["detail"] == case["response"]["detail"].replace("<dir>", str(folder))


@ONE_STORE
def test_ingest_stays_in_its_folder(service: Service, root: Path, trace_cases: Path) -> None:
    outside = trace_cases / "fixtures/ingest/good.jsonl"
    (root / "ingest/link.jsonl").unlink(missing_ok=True)
    (root / "ingest/link.jsonl").symlink_to(outside)
    (root / "ingest/circle").unlink(missing_ok=True)
    (root / "ingest/circle").symlink_to(root / "ingest/circle")
    for path in (str(outside), "../url", "link.jsonl", "/etc/passwd", "a\x00b", "x" * 5000, "circle"):
        answer = service.ask("POST", "/api/datasets/ingest", {"path": path, "source_name": "s"})
        assert (answer.status, answer.json()) == (400, {"detail": f"JSONL file not found: {path}"})
    strict = {"path": "mixed.jsonl", "source_name": "s", "strict": True}
    refused = service.ask("POST", "/api/datasets/ingest", strict)
    assert refused.status == 400
    assert refused.json()["detail"].startswith("line 4 is no trace: ")
    assert service.ask("POST", "/api/datasets/ingest", {"path": "good.jsonl", "source_name": "\ud800"}).status == 422


@ONE_STORE
def test_a_link_is_ingested_under_its_own_name(service: Service, root: Path) -> None:
    (root / "ingest/sub").mkdir(exist_ok=True)
    (root / "ingest/sub/newest.jsonl").unlink(missing_ok=True)
    (root / "ingest/sub/newest.jsonl").symlink_to("../good.jsonl")
    done = service.ask("POST", "/api/datasets/ingest", {"path": "sub/newest.jsonl", "source_name": "link"}).json()
    for one in done["trace_ids"]:
        meta = service.ask("GET", f"/api/traces/{one}").json()["payload"]["meta"]
        assert (meta["source"], meta["ingest_source_file"]) == ("link", "newest.jsonl")
        service.ask("DELETE", f"/api/traces/{one}")
    assert done["ingested_count"] == 3


def test_a_trace_lives_and_is_deleted(service: Service) -> None:
    made = service.ask("POST", "/api/traces", BASE).json()
    got = service.ask("GET", f"/api/traces/{made['id']}").json()
    assert got == {**made, "payload": BASE}
    assert service.ask("DELETE", f"/api/traces/{made['id']}").status == 204
    for method in ("GET", "DELETE"):
        gone = service.ask(method, f"/api/traces/{made['id']}")
        assert (gone.status, gone.json()) == (404, {"detail": f"Trace {made['id']} not found"})


def test_a_batch_is_all_or_nothing(service: Service) -> None:
    before = len(service.ask("GET", "/api/traces?limit=100").json()["data"])
    made = service.ask("POST", "/api/traces/batch", [BASE, {**BASE, "prompt": "other"}])
    assert made.status == 201
    assert made.json()["created_count"] == 2
    assert service.ask("POST", "/api/traces/batch", [BASE, {**BASE, "prompt": ""}]).status == 422
    ids = [one["id"] for one in made.json()["traces"]]
    listed = [one["id"] for one in service.ask("GET", "/api/traces?limit=2").json()["data"]]
    assert sorted(listed) == sorted(ids)
    for one in ids:
        service.ask("DELETE", f"/api/traces/{one}")
    assert len(service.ask("GET", "/api/traces?limit=100").json()["data"]) == before


@ONE_STORE
def test_the_limit_counts_bytes_that_come(service: Service) -> None:
    for body in (b" " * 1_048_577, iter([b" " * 500_000] * 3)):
        answer = service.ask("POST", "/api/traces", body)
        assert answer.status == 413
        assert answer.json() == {"detail": "Payload size exceeds maximum of 1048576 bytes"}
    padded = json.dumps(BASE).encode() + b" " * (1_048_576 - len(json.dumps(BASE)))
    assert service.ask("POST", "/api/traces", padded).status == 201
    assert service.ask("POST", "/api/traces/batch", b"[" + padded + b"," + padded + b"]").status == 201
    assert service.ask("POST", "/api/traces/batch", b" " * 67_108_865).status == 413
    assert service.ask("POST", "/api/datasets/build", b" " * 2_000_000).status == 413


@ONE_STORE
@each(
    "body",
    [
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"meta": ' + b'{"a":' * 50_000,
        b'{"trace_version": NaN}',
        b'{"prompt": 1e400}',
        b"null",
        b"[]",
        b'"x"',
        b"",
        json.dumps({**BASE, "meta": {"a": float("nan")}}).encode(),
        json.dumps({**BASE, "meta": {"a": "\ud800"}}).encode(),
        json.dumps({**BASE, "steps": [{"i": 10**400, "type": "t", "content": "c"}]})
        .replace("0" * 400, "0" * 5000)
        .encode(),
        json.dumps({**BASE, "steps": [{"i": "9" * 5000, "type": "t", "content": "c"}]}).encode(),
    ],
)
def test_bodies_that_are_wrong_are_the_clients_fault(service: Service, body: bytes) -> None:
    for url in ("/api/traces", "/api/traces/batch", "/api/datasets/build", "/api/tunix/sft/export"):
        answer = service.ask("POST", url, body)
        assert 400 <= answer.status < 500, (url, answer.status, answer.body)


@ONE_STORE
@each(
    "key", ["..", ".", "%2e%2e", "..%2f..%2fx", "a%00b", "a%0ab", "%ff", "k" * 300, "%F0%9F%98%80", "a%5Cb", "nope-v1"]
)
def test_keys_that_are_none_are_unknown(service: Service, root: Path, key: str) -> None:
    before = sorted(root.rglob("*"))
    for url in (f"/api/datasets/{key}/export.jsonl", f"/api/datasets/{key}/manifest", f"/datasets/{key}"):
        assert service.ask("GET", url).status == 404
    assert sorted(root.rglob("*")) == before


@ONE_STORE
def test_control_strings_are_refused_or_broken(service: Service, case_rows: list[dict[str, Any]]) -> None:
    made = service.ask("POST", "/api/traces", {**BASE, "prompt": "a<end_of_turn>b"}).json()["id"]
    body = {"trace_ids": [made], "control_tokens": "reject"}
    refused = service.ask("POST", "/api/tunix/sft/export", body)
    assert refused.status == 422
    assert made in refused.json()["detail"]
    escaped = service.ask("POST", "/api/tunix/sft/export", {**body, "control_tokens": "escape"}).json()
    assert escaped["prompts"].count("<end_of_turn>") == 2
    assert (
        service.ask("POST", "/api/tunix/sft/export", {"trace_ids": [made], "system": "S"}).body.count(b"user\\nS") == 1
    )
    service.ask("DELETE", f"/api/traces/{made}")


@ONE_STORE
def test_service_routes(service: Service) -> None:
    assert service.ask("GET", "/healthz").json() == {"status": "ok"}
    assert service.ask("GET", "/readyz").json() == {"status": "ready"}
    assert service.ask("GET", "/api/health").json() == {"status": "healthy"}
    counted = service.ask("GET", "/metrics").body.decode()
    assert 'spanloom_http_requests_total{method="GET",route="/healthz",status="200"}' in counted
    schema = service.ask("GET", "/openapi.json").json()
    assert "/api/datasets/{dataset_key}/export.jsonl" in schema["paths"]
    page = service.ask("GET", "/docs")
    assert b"POST /api/traces/batch" in page.body
    assert service.ask("GET", "/nothing").status == 404
    assert service.ask("PATCH", "/api/traces").status == 405
    named = service.ask("GET", "/healthz", headers={"x-request-id": "mine-1"})
    assert named.headers["x-request-id"] == "mine-1"
    assert service.ask("GET", "/healthz", headers={"x-request-id": "no blanks"}).headers["x-request-id"] != "no blanks"


@ONE_STORE
def test_pages_show_text_and_run_none(service: Service, case_rows: list[dict[str, Any]]) -> None:
    top = service.ask("GET", "/")
    assert top.status == 200
    assert b'href="/datasets/all-v1"' in top.body
    page = service.ask("GET", "/datasets/all-v1")
    assert page.status == 200
    markup = {**BASE, "prompt": "<script>alert(1)</script>", "meta": {"a": "\u202e"}}
    made = service.ask("POST", "/api/traces", markup).json()
    shown = service.ask("GET", f"/traces/{made['id']}")
    assert b"<script" not in shown.body
    assert b"default-src &#39;none&#39;" in shown.body or b"default-src 'none'" in shown.body
    assert "⟨U+202E⟩" in shown.body.decode()
    service.ask("DELETE", f"/api/traces/{made['id']}")
    assert service.ask("GET", f"/traces/{made['id']}").status == 404


@ONE_STORE
def test_archives_that_are_broken_are_the_clients_fault(service: Service, root: Path) -> None:
    whole = gzip.compress(b"".join(json.dumps({**BASE, "prompt": str(n)}).encode() + b"\n" for n in range(500)))
    broken = {
        "cut.jsonl.gz": whole[:-40],
        "plain.jsonl.gz": json.dumps(BASE).encode(),
        "empty.jsonl.gz": b"",
        "garbage.jsonl.zst": os.urandom(500),
        "upper.jsonl.GZ": whole[:-40],
    }
    before = service.ask("GET", "/api/traces?limit=100").json()
    for name, data in broken.items():
        (root / "ingest" / name).write_bytes(data)
        answer = service.ask("POST", "/api/datasets/ingest", {"path": name, "source_name": "s"})
        assert answer.status == 400, (name, answer.body)
        assert "cannot be unpacked" in answer.json()["detail"]
    assert service.ask("GET", "/api/traces?limit=100").json() == before
    (root / "ingest/whole.jsonl.GZ").write_bytes(whole)
    body = {"path": "whole.jsonl.GZ", "source_name": "s"}
    done = service.ask("POST", "/api/datasets/ingest", body).json()
    assert done["ingested_count"] == 500
    for one in done["trace_ids"]:
        service.ask("DELETE", f"/api/traces/{one}")


@ONE_STORE
def test_a_file_that_cannot_be_read_is_the_clients_fault(service: Service, root: Path) -> None:
    # Of this one of Linux's files every read is an EIO: a file of a disk that fails.
    store = open_store((root / "url").read_text())
    with served(traces_application(store, root, ingest_dir=Path(f"/proc/{os.getpid()}"))) as other:
        answer = other.ask("POST", "/api/datasets/ingest", {"path": "mem", "source_name": "s"})
    store.close()
    assert answer.status == 400, answer.body
    assert "the file cannot be read" in answer.json()["detail"]


@ONE_STORE
def test_wrong_manifests_on_disk(service: Service, root: Path) -> None:
    good = json.loads((root / "datasets/one-v1/manifest.json").read_bytes())
    wrong = {
        "name": {**good, "dataset_key": "wrong-name", "dataset_name": "\ud800"},
        "nan": {**good, "dataset_key": "wrong-nan", "filters": {"a": float("nan")}},
        "deep": {**good, "dataset_key": "wrong-deep", "provenance": json.loads('{"a":' * 400 + "1" + "}" * 400)},
        "other": good,
    }
    folders = [root / f"datasets/wrong-{name}" for name in (*wrong, "fifo", "link")]
    for folder in folders:
        folder.mkdir()
    try:
        for name, manifest in wrong.items():
            (root / f"datasets/wrong-{name}/manifest.json").write_text(json.dumps(manifest))
        os.mkfifo(root / "datasets/wrong-fifo/manifest.json")
        (root / "datasets/wrong-link/manifest.json").symlink_to("manifest.json")
        for folder in folders:
            for path in ("manifest", "export.jsonl"):
                answer = service.ask("GET", f"/api/datasets/{folder.name}/{path}")
                assert (answer.status, answer.json()) == (409, {"detail": f"Manifest invalid: {folder.name}"})
            assert service.ask("GET", f"/datasets/{folder.name}").status == 409
        listed = {one["dataset_key"]: one["valid"] for one in service.ask("GET", "/api/datasets").json()["data"]}
        assert listed["one-v1"]
        assert [listed[folder.name] for folder in folders] == [False] * len(folders)
        assert b"invalid manifest" in service.ask("GET", "/").body
    finally:
        for folder in folders:
            shutil.rmtree(folder)


@ONE_STORE
def test_head_and_tags(service: Service) -> None:
    export = "/api/datasets/one-v1/export.jsonl"
    got = service.ask("GET", export)
    for url in (export, "/", "/docs", "/datasets/one-v1"):
        answer = service.ask("HEAD", url)
        assert (answer.status, answer.body) == (200, b"")
        assert answer.headers["content-type"] == service.ask("GET", url).headers["content-type"]
    head = service.ask("HEAD", export)
    assert head.headers["etag"] == got.headers["etag"]
    for known in ("*", f'"x", {got.headers["etag"]}', f"W/{got.headers['etag']}"):
        assert service.ask("GET", export, headers={"if-none-match": known}).status == 304
    assert service.ask("GET", export, headers={"if-none-match": '"x"'}).body == got.body


def test_a_trace_that_is_stored_again_changes_the_tag(service: Service, root: Path) -> None:
    (root / "ingest/again.jsonl").write_text(json.dumps({**BASE, "prompt": "stored again"}) + "\n")
    file = {"path": "again.jsonl", "source_name": "again"}
    build = {"dataset_name": "again", "dataset_version": "v1", "filters": {"source": "again"}}
    (trace_id,) = service.ask("POST", "/api/datasets/ingest", file).json()["trace_ids"]
    assert service.ask("POST", "/api/datasets/build", build).status == 201
    url = "/api/datasets/again-v1/export.jsonl"
    first = service.ask("GET", url)
    assert service.ask("GET", url).headers["etag"] == first.headers["etag"]
    service.ask("DELETE", f"/api/traces/{trace_id}")
    assert service.ask("POST", "/api/datasets/ingest", file).json()["trace_ids"] == [trace_id]
    second = service.ask("GET", url, headers={"if-none-match": first.headers["etag"]})
    assert second.status == 200
    assert second.body != first.body
    service.ask("DELETE", f"/api/traces/{trace_id}")
    shutil.rmtree(root / "datasets/again-v1")


@ONE_STORE
def test_a_browser_gets_errors_as_pages(service: Service) -> None:
    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for url, status, told in (
        ("/traces/xx", 422, "valid UUID"),
        ("/datasets/one-v1?offset=x", 422, "valid integer"),
        ("/?offset=-1", 422, "greater than or equal to 0"),
        ("/nothing", 404, "Not Found"),
    ):
        answer = service.ask("GET", url, headers=browser)
        assert answer.status == status
        assert answer.headers["content-type"].startswith("text/html")
        assert told in answer.body.decode()
        assert service.ask("GET", url).headers["content-type"] == "application/json"


@ONE_STORE
def test_the_start_page_leads_to_all_traces(service: Service) -> None:
    made = service.ask("POST", "/api/traces/batch", [{**BASE, "prompt": f"prompt {n}\nmore"} for n in range(150)])
    total = 0
    url, seen = "/", ""
    while url:
        page = service.ask("GET", url).body.decode()
        seen += page
        total += page.count("/traces/") // 2
        offset = page.partition(">later</a>")[0].rpartition("offset=")[2] if ">later</a>" in page else ""
        url = f"/?offset={offset.rstrip(chr(34))}" if offset else ""
    ids = [one["id"] for one in made.json()["traces"]]
    assert all(one in seen for one in ids)
    assert f"of {total:,}." in seen
    assert "prompt 149" in seen
    assert "more" not in seen.partition("prompt 149")[2].partition("</tr>")[0]
    for one in ids:
        service.ask("DELETE", f"/api/traces/{one}")


def test_the_scheme_of_a_token_may_be_written_in_any_case(tmp_path: Path) -> None:
    store = open_store(default_url(tmp_path), create=True)
    with served(traces_application(store, tmp_path, token="T0ken")) as running:
        for scheme in ("Bearer", "bearer", "BEARER"):
            assert running.ask("GET", "/api/traces", headers={"authorization": f"{scheme} T0ken"}).status == 200
        for wrong in ("Bearer t0ken", "Basic T0ken", "T0ken", "BearerT0ken", "Bearer"):
            assert running.ask("GET", "/api/traces", headers={"authorization": wrong}).status == 401
    store.close()


def test_data_of_others_is_ingested_on_demand(service: Service, root: Path) -> None:
    question = {"question": "1 + 1?", "answer": "One and one.\n#### 2"}
    own_keys = {"q": {"text": "2 + 2?"}, "thought": ["Add."], "solution": "4"}
    for name, records in {"gsm8k": [question, {"question": "x"}], "columns": [own_keys, {"q": 1}]}.items():
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (root / f"ingest/{name}.jsonl").write_text(lines)

    def ingest(name: str, **more: Any) -> Answer:
        return service.ask("POST", "/api/datasets/ingest", {"path": f"{name}.jsonl", "source_name": name, **more})

    assert ingest("gsm8k").status == ingest("columns", recognise=True).status == 400
    keys = {"prompt": "q.text", "answer": "solution", "steps": "thought"}
    for name, options in {"gsm8k": {"recognise": True}, "columns": {"map": keys}}.items():
        answer = ingest(name, **options)
        assert answer.status == 201, answer.json()
        done = answer.json()
        assert (done["ingested_count"], done["skipped_count"], sum(done["left_out"].values())) == (1, 1, 1)
        trace = service.ask("GET", f"/api/traces/{done['trace_ids'][0]}").json()["payload"]
        assert trace["prompt"] == ("1 + 1?" if name == "gsm8k" else "2 + 2?")
        assert trace["meta"]["source"] == name
    for wrong in ({"prompt": "q"}, {**keys, "steps": ""}, {**keys, "more": "x"}, "prompt=q", {**keys, "answer": 1}):
        assert ingest("columns", map=wrong).status == 422
