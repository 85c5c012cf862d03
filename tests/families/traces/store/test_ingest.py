"""JSON Lines into the store: the recorded cases, and what happens twice, in part or not at all."""

import json
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanloom.families.traces.errors import TraceError
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.database import Store
from spanloom.families.traces.store.ingest import SKIPPED_KEPT, ingest_file
from spanloom.families.traces.store.opening import open_store
from support.each import each
from support.traces import CASES, json_lines, payloads, read_json

SOURCE = "import_test"
EXPECTED = CASES / "fixtures/ingest/expected.json"
RECORDED = {case["file"]: case for case in read_json(EXPECTED)}


ONE_STORE = pytest.mark.parametrize("new_store", ["sqlite"], indirect=True)
"""For what is decided before a line is stored: one kind of store is enough."""


def payload(**changed: Any) -> dict[str, Any]:
    steps = [{"i": 0, "type": "t", "content": "c"}]
    return {"trace_version": "1.0", "prompt": "q", "final_answer": "a", "steps": steps, **changed}


def stored(store: Store) -> list[dict[str, Any]]:
    """All payloads, oldest first."""
    with store.snapshot() as snapshot:
        return [trace.payload for trace in snapshot.traces(list(snapshot.ids())[::-1])]


@each("name", [name for name in sorted(RECORDED) if (CASES / "fixtures/ingest" / name).is_file()])
def test_recorded_files(new_store: Any, trace_cases: Path, decisions: dict[str, Any], name: str) -> None:
    """Names that are no file here are the service's: test_routes has them."""
    case, path = RECORDED[name], trace_cases / "fixtures/ingest" / name
    with closing(open_store(new_store(), create=True)) as store:
        check_recorded_file(store, case, path, decisions.get(f"ingest:{name}", {}))


def check_recorded_file(store: Store, case: dict[str, Any], path: Path, decision: dict[str, Any]) -> None:
    name = path.name
    wanted = decision.get("expect_ingested", case.get("ingested_count"))
    if name in ("limit_1001.jsonl", "latin1.jsonl"):
        wanted = sum(
            1 for line in path.read_bytes().splitlines() if _is_utf8(line)
        )  # no cap, and bad bytes cost a line
    if wanted is None:
        with pytest.raises(TraceError, match="No valid traces found in") as told:
            ingest_file(store, path, source_name=SOURCE, called=f"<dir>/{name}")
        assert told.value.what == case["response"]["detail"]
        assert stored(store) == []
        return
    done = ingest_file(store, path, source_name=SOURCE)
    assert done.ingested_count == wanted
    payloads = stored(store)
    assert len(payloads) == wanted
    recorded = case.get("payloads", [])
    assert payloads[len(payloads) - len(recorded) :] == recorded  # a BOM costs the original its first line
    assert list(map(list, payloads[len(payloads) - len(recorded) :])) == list(map(list, recorded))


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_recorded_ids(store: Store, trace_cases: Path) -> None:
    folder = trace_cases / "fixtures/ingest"
    expected = read_json(folder / "expected_content_ids.json")
    for name, ids in expected["ids"].items():
        if (folder / name).is_file():
            done = ingest_file(store, folder / name, source_name=expected["source_name"])
            assert done.trace_ids[-len(ids) :] == ids, name


def test_real_files_are_taken_whole(store: Store, real_traces: Path) -> None:
    for path in sorted(real_traces.glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
        if any("final_answer" not in line for line in lines):
            continue  # questions for an evaluation are no traces
        done = ingest_file(store, path, source_name="real", strict=True)
        assert done.ingested_count == len(lines) > 0
        assert ingest_file(store, path, source_name="real").skipped_existing == len(lines)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(values=st.lists(payloads() | st.just(payload()) | st.integers(), min_size=1, max_size=6))
def test_a_file_ingested_twice_changes_nothing(tmp_path: Path, store: Store, values: list[Any]) -> None:
    lines = [{**value, "meta": value.get("meta") or {}} if isinstance(value, dict) else value for value in values]
    path = json_lines(tmp_path / "x.jsonl", [payload(prompt="one that is valid"), *lines])
    first = ingest_file(store, path, source_name="s")
    before = stored(store)
    second = ingest_file(store, path, source_name="s")
    assert stored(store) == before
    assert second.trace_ids == []
    assert second.skipped_existing == first.ingested_count + first.skipped_existing
    assert first.skipped_count == sum(isinstance(value, int) for value in values)


@ONE_STORE
def test_lines_are_told_with_number_and_reason(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    good = json.dumps(payload()).encode()
    deep = b'{"meta":' + b'{"a":' * 2000 + b"1" + b"}" * 2001
    path.write_bytes(b"\n".join([good, b"", b'{"a": NaN}', b"\xff", b"[]", deep, good]))
    done = ingest_file(store, path, source_name="s")
    assert done.ingested_count == 2
    assert [line["line"] for line in done.skipped] == [3, 4, 5, 6]
    assert done.skipped[2]["reason"] == "not a JSON object"
    assert done.as_dict()["skipped_count"] == 4


@ONE_STORE
def test_of_many_bad_lines_the_first_are_told_and_all_are_counted(store: Store, tmp_path: Path) -> None:
    path = json_lines(tmp_path / "x.jsonl", [payload(), *[1] * 250])
    done = ingest_file(store, path, source_name="s")
    assert (done.skipped_count, len(done.skipped)) == (250, SKIPPED_KEPT)


def test_strict_stores_nothing(store: Store, tmp_path: Path) -> None:
    path = json_lines(tmp_path / "x.jsonl", [*(payload(prompt=str(number)) for number in range(1500)), {}])
    with pytest.raises(TraceError, match="line 1501"):
        ingest_file(store, path, source_name="s", strict=True)
    assert stored(store) == []


def test_rows_of_a_file_are_a_microsecond_apart(store: Store, tmp_path: Path) -> None:
    values = [payload(prompt=str(number)) for number in range(1200)]
    path = json_lines(tmp_path / "x.jsonl", [*values[:600], 1, *values[600:]])
    ingest_file(store, path, source_name="s", created_at=timestamps.given("2026-01-01T00:00:00.999990Z"))
    with store.snapshot() as snapshot:
        heads = snapshot.heads(limit=2000, offset=0)[::-1]
    assert [head.created_at for head in heads[9:11]] == ["2026-01-01T00:00:00.999999Z", "2026-01-01T00:00:01.000000Z"]
    assert [one["prompt"] for one in stored(store)] == [str(number) for number in range(1200)]


@ONE_STORE
def test_random_ids_are_of_version_4_and_new_each_time(store: Store, tmp_path: Path) -> None:
    path = json_lines(tmp_path / "x.jsonl", [payload()] * 2)
    ids = [*(ingest_file(store, path, source_name="s", ids="random").trace_ids for _ in range(2))]
    flat = [one for each in ids for one in each]
    assert len(set(flat)) == 4
    assert {uuid.UUID(one).version for one in flat} == {4}


def test_meta_keeps_its_order_and_gets_the_two_keys(store: Store, tmp_path: Path) -> None:
    path = json_lines(tmp_path / "x.jsonl", [payload(meta={"ingest_source_file": 1, "z": 2, "source": 3, "a": 4})])
    ingest_file(store, path, source_name="s")
    (only,) = stored(store)
    assert list(only["meta"].items()) == [("ingest_source_file", "x.jsonl"), ("z", 2), ("source", "s"), ("a", 4)]


def test_compressed_files_are_read_too(new_store: Any, tmp_path: Path) -> None:
    import gzip

    plain = json_lines(tmp_path / "x.jsonl", [payload(prompt=str(number)) for number in range(3)])
    packed = tmp_path / "x.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    store = open_store(new_store(), create=True)
    assert ingest_file(store, packed, source_name="s").ingested_count == 3
    store.close()
