"""Which traces a dataset has, and its manifest: the recorded builds, selection, keys."""

import json
import os
import random
from inspect import isgenerator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from spanloom.errors import OptionError
from spanloom.families.traces.build import BuildRequest, EmptyDatasetError, MissingSeedError, build_dataset
from spanloom.families.traces.errors import InvalidManifestError, UnknownDatasetError
from spanloom.families.traces.store import timestamps
from spanloom.families.traces.store.catalogue import dataset_list
from spanloom.families.traces.store.database import Store
from spanloom.families.traces.store.keys import dataset_key, is_key, manifest_file
from spanloom.families.traces.store.manifest import dataset_keys, manifest_bytes, parse_manifest, read_manifest
from spanloom.families.traces.store.opening import default_url, open_store
from spanloom.families.traces.store.selection import matches, newest, same_json, sampled
from support.each import each
from support.traces import CASES, JSON, read_json, store_rows

BUILDS = CASES / "fixtures/builds.json"
RECORDED = {case["case"]: case for case in read_json(BUILDS)}


@each("name", sorted(RECORDED))
def test_recorded_builds(filled: Store, tmp_path: Path, decisions: dict[str, Any], name: str) -> None:
    tmp_path = tmp_path / name
    case, decision = RECORDED[name], decisions.get(name, {})
    if decision.get("expect_status", case["status"]) != 201:
        with pytest.raises((ValidationError, OptionError, EmptyDatasetError)) as refused:
            build_dataset(filled, tmp_path, BuildRequest.model_validate(case["request"]))
        assert not list(tmp_path.glob("datasets/*"))
        response = case["response"]
        if isinstance(refused.value, ValidationError):
            errors = refused.value.errors()
            assert [["body", *error["loc"]] for error in errors] == response["detail_locs"]
            assert [error["type"] for error in errors] == response["detail_types"]
        else:
            assert refused.value.what == response["detail"]
        return
    manifest, path = build_dataset(filled, tmp_path, BuildRequest.model_validate(case["request"]))
    written = json.loads(path.read_bytes())
    ids = decision.get("expect_trace_ids") or case["manifest"]["trace_ids"]
    assert written["trace_ids"] == ids
    if "manifest" not in case:
        return
    assert list(written) == case["manifest_key_order"]
    assert list(written["stats"]) == list(case["manifest"]["stats"])
    assert list(written["provenance"]) == list(case["manifest"]["provenance"])
    expected = case["manifest"]
    for holder, said in ((written, expected), (written["provenance"], expected["provenance"])):
        for key, value in said.items():
            if value == "<varies>":
                holder[key] = value
    if decision:  # other traces than recorded: what follows from them follows here too
        expected = {**expected, "trace_ids": ids, "trace_count": len(ids), "stats": written["stats"]}
        expected["provenance"] = {**expected["provenance"], "trace_count": len(ids)}
    assert written == expected
    assert path == manifest_file(tmp_path, case["response"]["dataset_key"])
    assert read_manifest(tmp_path, case["response"]["dataset_key"]) == manifest


def request(**changed: Any) -> BuildRequest:
    return BuildRequest.model_validate({"dataset_name": "d", "dataset_version": "v1", **changed})


def test_a_manifest_of_the_service_is_the_same_bytes_again(real_traces: Path) -> None:
    for path in sorted(real_traces.glob("*.manifest.json")):
        data = path.read_bytes()
        try:
            manifest = parse_manifest(data, str(path))
        except InvalidManifestError:
            assert json.loads(data)["selection_strategy"] not in ("latest", "random")
            continue
        assert manifest_bytes(manifest) == data.rstrip(b"\n")


def test_older_manifests_load(tmp_path: Path) -> None:
    """As tunix-rt's own page shows one: no provenance, no count in the stats, fewer ids than `trace_count` says."""
    said = {
        "dataset_key": "a-v1",
        "build_id": "ba6236b4-f07d-4cbd-b412-3883a0ee8131",
        "dataset_name": "a",
        "dataset_version": "v1",
        "dataset_schema_version": "1.0",
        "created_at": "2025-12-21T10:30:00Z",
        "filters": {},
        "selection_strategy": "latest",
        "seed": None,
        "trace_ids": ["00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"],
        "trace_count": 100,
        "stats": {"avg_step_count": 4.2, "min_step_count": 1, "max_step_count": 10, "avg_total_chars": 245.7},
    }
    path = manifest_file(tmp_path, "a-v1")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(said))
    read = read_manifest(tmp_path, "a-v1")
    assert (read.provenance, read.ids, read.trace_count) == ({}, said["trace_ids"], 100)
    assert [(one["valid"], one["trace_count"]) for one in dataset_list(tmp_path)] == [(True, 2)]
    for data in (b"", b"[]", b"{", json.dumps({**said, "trace_ids": ["x"]}).encode(), b"\xff", b"[" * 10**6):
        with pytest.raises(InvalidManifestError):
            parse_manifest(data, "x")


def test_reproducible_builds_are_equal_bytes(filled: Store, tmp_path: Path) -> None:
    wanted = request(selection_strategy="random", seed=1, limit=5, provenance={"a": 1})
    files = [build_dataset(filled, tmp_path / name, wanted, reproducible=True)[1].read_bytes() for name in "ab"]
    assert files[0] == files[1]
    said = json.loads(files[0])
    with filled.snapshot() as snapshot:
        times = [count.created_at for count in snapshot.counts(said["trace_ids"]).values()]
    assert said["created_at"] == timestamps.shown(max(times))
    other = build_dataset(filled, tmp_path / "c", request(seed=2, limit=5), reproducible=True)[0]
    assert str(other.build_id) != said["build_id"]


def test_a_key_is_built_again_in_place(filled: Store, tmp_path: Path) -> None:
    first, path = build_dataset(filled, tmp_path, request(limit=1))
    second, same = build_dataset(filled, tmp_path, request(limit=2))
    assert path == same
    assert read_manifest(tmp_path, "d-v1") == second != first
    assert list(dataset_keys(tmp_path)) == ["d-v1"]


def test_the_seed_is_asked_for_before_the_store_is_read(tmp_path: Path) -> None:
    store = open_store(default_url(tmp_path), create=True)
    store.close()
    (tmp_path / "traces.sqlite").unlink()
    with pytest.raises(MissingSeedError):
        build_dataset(store, tmp_path, request(selection_strategy="random"))


def test_null_matches_absent_keys_and_objects_compare_deep() -> None:
    assert matches({}, {"a": None})
    assert matches({"a": None}, {"a": None})
    assert not matches({"a": 0}, {"a": None})
    assert not matches({"a": False}, {"a": 0})
    assert matches({"a": {"b": [1, True]}}, {"a": {"b": [1.0, True]}})
    assert not matches({"a": {"b": [1, 1]}}, {"a": {"b": [1, True]}})
    assert not matches({"a.b": 1}, {"a": {"b": 1}})


@given(JSON, JSON)
def test_equality_is_symmetric_and_reflexive(one: Any, other: Any) -> None:
    assert same_json(one, one)
    assert same_json(one, other) == same_json(other, one)
    if same_json(one, other):
        assert one == other


@given(st.integers(0, 300), st.integers(1, 10_000), st.integers())
def test_the_sample_is_that_of_cpython(count: int, limit: int, seed: int) -> None:
    ids = [f"00000000-0000-0000-0000-{number:012x}" for number in range(count)]
    before = random.getstate()
    drawn = sampled(iter(ids), limit, seed)
    assert random.getstate() == before
    assert drawn == random.Random(seed).sample(ids, min(limit, count))
    assert newest(ids, limit) == ids[:limit]


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_key_never_leaves_the_root(name: str, version: str) -> None:
    try:
        key = dataset_key(name, version)
    except OptionError:
        return
    assert is_key(key)
    path = Path(os.path.normpath(manifest_file(Path("/root"), key)))
    assert path.parent.parent == Path("/root/datasets")
    assert path.parent.name == key


@pytest.mark.parametrize(
    "key", ["", ".", "..", "../x", "a/b", "a\\b", "a\x00b", "a\nb", "a b", "k" * 194, "字" * 90, "a:b", "é\u0301"]
)
def test_what_is_no_key_is_an_unknown_dataset(tmp_path: Path, key: str) -> None:
    with pytest.raises(UnknownDatasetError) as told:
        read_manifest(tmp_path / "none", key)
    assert told.value.what == f"Dataset not found: {key}"
    assert not list(tmp_path.iterdir())


def test_names_of_any_script_are_keys() -> None:
    assert dataset_key("datensatz_ü", "v1") == "datensatz_ü-v1"
    assert dataset_key("данные", "版本1") == "данные-版本1"
    assert dataset_key("my data/set", "v 1/2") == "my_data_set-v_1_2"
    assert dataset_key("..", "v1") == "..-v1"
    for name, version in (("a\n", "1"), ("a\\", "1"), ("字" * 86, "1"), ("a", "\x00")):
        with pytest.raises(OptionError):
            dataset_key(name, version)


def test_deleted_traces_stay_in_the_manifest(filled: Store, tmp_path: Path, case_rows: list[dict[str, Any]]) -> None:
    manifest, _ = build_dataset(filled, tmp_path, request(limit=10_000))
    with filled.writing() as writer:
        writer.delete([case_rows[0]["id"]])
    assert case_rows[0]["id"] in read_manifest(tmp_path, "d-v1").ids
    again, _ = build_dataset(filled, tmp_path, request(limit=10_000))
    assert len(again.ids) == len(manifest.ids) - 1


def test_both_stores_give_the_same_manifest(
    tmp_path: Path, request: pytest.FixtureRequest, case_rows: list[dict[str, Any]]
) -> None:
    files = set()
    for name, url in (("a", default_url(tmp_path)), ("b", request.getfixturevalue("postgres").database())):
        store = open_store(url, create=True)
        store_rows(store, case_rows)
        wanted = BuildRequest(dataset_name="d", dataset_version="1", filters={"source": "manual"}, limit=7)
        files.add(build_dataset(store, tmp_path / name, wanted, reproducible=True)[1].read_bytes())
        store.close()
    assert len(files) == 1


def test_a_build_that_fails_leaves_no_cursor_open(filled: Store, tmp_path: Path) -> None:
    (tmp_path / "datasets").write_bytes(b"no folder")
    for filters in ({}, {"source": "ungar"}):
        with pytest.raises(OSError) as held:
            build_dataset(filled, tmp_path, request(limit=1, filters=filters))
        open_generators = [
            frame
            for entry in held.traceback
            for frame in entry.frame.f_locals.values()
            if isgenerator(frame) and frame.gi_frame is not None and "traces" in frame.gi_code.co_filename
        ]
        assert open_generators == []


def _manifest_with(**changed: Any) -> bytes:
    return json.dumps({**WHOLE, **changed}).encode()


WHOLE: dict[str, Any] = {
    "dataset_key": "d-v1",
    "build_id": "00000000-0000-0000-0000-000000000001",
    "dataset_name": "d",
    "dataset_version": "v1",
    "created_at": "2026-01-01T00:00:00Z",
    "selection_strategy": "latest",
    "trace_ids": ["00000000-0000-0000-0000-000000000002"],
    "trace_count": 1,
}
DEEP: Any = json.loads('{"a":' * 400 + "1" + "}" * 400)
WRONG_MANIFESTS: dict[str, bytes] = {
    "name": _manifest_with(dataset_name="\ud800"),
    "filter": _manifest_with(filters={"a": "\udfff"}),
    "filter's key": _manifest_with(filters={"\ud800": 1}),
    "key": _manifest_with(dataset_key="\ud800"),
    "NaN": _manifest_with(filters={"a": float("nan")}),
    "infinite": _manifest_with(stats={"a": float("inf")}),
    "deep": _manifest_with(provenance=DEEP),
    "deeper": b"[" * 200_000,
    "of another": _manifest_with(dataset_key="e-v1"),
    "bytes": b"\xff",
}


@pytest.mark.parametrize("wrong", WRONG_MANIFESTS)
def test_a_wrong_manifest_is_told(tmp_path: Path, wrong: str) -> None:
    path = manifest_file(tmp_path, "d-v1")
    path.parent.mkdir(parents=True)
    path.write_bytes(_manifest_with())
    assert read_manifest(tmp_path, "d-v1").trace_count == 1
    path.write_bytes(WRONG_MANIFESTS[wrong])
    with pytest.raises(InvalidManifestError):
        read_manifest(tmp_path, "d-v1")
    assert [one["valid"] for one in dataset_list(tmp_path)] == [False]


def test_a_manifest_that_is_no_file_is_told(tmp_path: Path) -> None:
    for name in ("link", "fifo", "folder", "circle"):
        (tmp_path / "datasets" / name).mkdir(parents=True)
    (tmp_path / "datasets/link/manifest.json").symlink_to("manifest.json")
    os.mkfifo(tmp_path / "datasets/fifo/manifest.json")
    (tmp_path / "datasets/folder/manifest.json").mkdir()
    (tmp_path / "datasets/circle").rmdir()
    (tmp_path / "datasets/circle").symlink_to("circle")
    (tmp_path / "datasets/empty").mkdir()
    for name in ("link", "fifo", "folder", "circle"):
        with pytest.raises(InvalidManifestError):
            read_manifest(tmp_path, name)
    assert {one["dataset_key"]: one["valid"] for one in dataset_list(tmp_path)} == dict.fromkeys(
        ("circle", "fifo", "folder", "link"), False
    )
