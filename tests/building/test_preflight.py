"""What would fail the tasks of a pipeline is found before they start: all faults at once, and nothing stays behind."""

import sys
import time
from pathlib import Path
from threading import Event

import pytest

from conftest import Cli
from pipelines.compile import PIPELINES
from spanloom.building.preflight import checks
from spanloom.building.preflight.checks import Plan, PreflightError, preflight
from spanloom.building.preflight.places import check_reads, check_writes
from spanloom.building.preflight.source import check_source
from spanloom.cli.pipelines.tasks import list_of
from spanloom.errors import ConflictError, SourceError, StorageError, TokenizerError
from spanloom.families.harmony.steps import verify_tokenizer
from spanloom.storage.claim import claim_root
from spanloom.storage.publishing import publish_folder
from spanloom.storage.stores.retry import DEADLINE_VARIABLE
from spanloom.tasks.stage import scratch_bytes
from support import sources
from support.object_stores import Contents, Place
from support.stores.proxy import Answer, Fault, Proxy, when, without_condition

SHARDS = 4


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return sources.write_source(tmp_path / "source", [sources.rows(30, prefix=f"s{shard}") for shard in range(SHARDS)])


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


# --- Places ----------------------------------------------------------------------------------------------------------


def test_an_output_takes_a_file_and_is_left_as_it_was(place: Place, proxy: Proxy, contents: Contents) -> None:
    assert check_writes(str(place.uri / "root")) is None
    assert contents.names(place.uri) == []
    assert {"send", "delete"} <= {request.does for request in proxy.requests}


def test_an_output_on_a_disk_takes_a_file_and_no_folder_is_made(tmp_path: Path) -> None:
    assert check_writes(str(tmp_path / "not" / "yet")) is None
    assert tree(tmp_path) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, where nobody makes files")
def test_an_output_that_takes_no_file_is_named() -> None:
    with pytest.raises(OSError, match="no file can be made in /proc") as refused:
        check_writes("/proc/new/root")
    assert refused.value.filename == "/proc/new/root"


def test_a_store_that_overwrites_is_refused_and_nothing_stays(place: Place, proxy: Proxy, contents: Contents) -> None:
    proxy.fault = without_condition("send", "finish", "begin")
    with pytest.raises(StorageError, match="it overwrites objects that exist"):
        check_writes(str(place.uri))
    assert contents.names(place.uri) == []


def test_a_file_that_may_not_be_removed_is_named_and_is_no_fault(
    place: Place, proxy: Proxy, contents: Contents
) -> None:
    proxy.fault = when("delete", Answer(status=403))
    result = preflight(Plan(reads={}, writes={"root": str(place.uri)}))
    (name,) = contents.names(place.uri)
    (warning,) = result["warnings"]
    assert name in warning
    assert "not removed" in warning


def test_a_root_that_other_code_has_claimed_is_refused(place: Place) -> None:
    claim_root(place.uri, {"git_sha": "1" * 40, "config": {}})
    with pytest.raises(ConflictError, match="git_sha is not the same"):
        check_writes(str(place.uri))


def test_an_object_that_may_be_listed_and_not_read_is_found(place: Place, proxy: Proxy, contents: Contents) -> None:
    contents.put(place.uri / "one", b"text")
    assert check_reads(str(place.uri)) == {"files": 1, "bytes": 4}
    proxy.fault = when("read", Answer(status=403))
    with pytest.raises(StorageError, match="permission"):
        check_reads(str(place.uri))


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_an_input_without_a_file_is_a_fault(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    plan = Plan(reads={"source": str(tmp_path / name)}, writes={})
    with pytest.raises(PreflightError, match=name):
        preflight(plan)


# --- The source ------------------------------------------------------------------------------------------------------


def test_the_estimate_is_the_same_on_a_disk_and_in_a_bucket_where_no_shard_is_downloaded(
    source: Path, place: Place, proxy: Proxy
) -> None:
    publish_folder(source, place.uri / "source", last="manifest.json")
    local = check_source(str(source), SHARDS)
    proxy.requests.clear()
    assert check_source(str(place.uri / "source"), SHARDS) == local
    shard = max(file.stat().st_size for file in source.glob("*.parquet"))
    assert shard + 3 * (256 << 20) <= local < 2 * (shard + 3 * (256 << 20))


@pytest.mark.parametrize("remote", [False, True])
def test_a_source_that_lacks_a_shard_or_has_a_torn_one_is_refused(source: Path, gs_place: Place, remote: bool) -> None:
    (source / sources.shard_name(1)).unlink()
    torn = source / sources.shard_name(2)
    torn.write_bytes(torn.read_bytes()[:-7])
    if remote:
        publish_folder(source, gs_place.uri / "source", last="manifest.json")
    with pytest.raises(SourceError, match=f"{sources.shard_name(1)} is missing, {sources.shard_name(2)} has"):
        check_source(str(gs_place.uri / "source") if remote else str(source), SHARDS)


def test_a_shard_of_the_right_length_that_is_no_parquet_is_refused(source: Path, gs_place: Place) -> None:
    shard = source / sources.shard_name(0)
    shard.write_bytes(bytes(shard.stat().st_size))
    publish_folder(source, gs_place.uri / "source", last="manifest.json")
    with pytest.raises(SourceError) as refused:
        check_source(str(gs_place.uri / "source"), SHARDS)
    assert refused.value.where == str(gs_place.uri / "source" / shard.name)


def test_another_number_of_tasks_than_shards_is_refused(source: Path) -> None:
    with pytest.raises(SourceError, match="the source has 4 shards, the pipeline has 7 tasks"):
        check_source(str(source), 7)


def test_a_scratch_volume_that_is_too_small_is_refused(source: Path) -> None:
    plan = Plan(reads={"source": str(source)}, writes={}, source="source", shards=SHARDS, scratch=scratch_bytes("500M"))
    with pytest.raises(PreflightError, match=r"a task needs about 0\.8 GB of scratch space, there are 0\.5 GB"):
        preflight(plan)


@pytest.mark.parametrize(
    ("quantity", "expected"),
    [("200Gi", 214_748_364_800), ("10G", 10**10), ("1.5Ti", 1_649_267_441_664), ("5000000", 5_000_000), ("2Ki", 2048)],
)
def test_quantities_are_those_of_kubernetes(quantity: str, expected: int) -> None:
    assert scratch_bytes(quantity) == expected


# --- All at once -----------------------------------------------------------------------------------------------------


def test_all_faults_come_at_once_each_with_its_remedy(cli: Cli, gs_place: Place, tmp_path: Path) -> None:
    asset = tmp_path / "o200k_base.tiktoken"
    asset.write_bytes(b"other")
    done = cli(
        "preflight",
        "synth_kd",
        f"source_uri={gs_place.uri}/source",
        "dataset_root=/proc/nothing",
        f"work_uri=gs://nobody-has-this/{gs_place.uri.key}",
        f"tokenizer_uri={asset}",
        **gs_place.environment,
        SPANLOOM_EXPECTED_GIT_SHA="2" * 40,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: 6 faults, before any work was done:\n1. ")
    for told in ("there is no object", "manifest.json", "/proc", "nobody-has-this", "5 bytes", "2" * 40):
        assert told in done.stderr, told
    assert done.stderr.count("remedy: ") == 6


def test_the_first_step_stops_with_all_faults_and_leaves_nothing(
    source: Path, place: Place, contents: Contents
) -> None:
    publish_folder(source, place.uri / "source", last="manifest.json")
    before = contents.names(place.uri)
    places = {"source": str(place.uri / "source"), "root": str(place.uri / "root"), "shards": SHARDS}
    result = verify_tokenizer.run(**places)
    assert set(result["preflight"]) == {"reads source", "scratch", "code", "warnings"}
    assert contents.names(place.uri) == before
    with pytest.raises(PreflightError, match="2 faults") as refused:
        verify_tokenizer.run(**{**places, "shards": 3}, tokenizer=str(source / "manifest.json"))
    assert {type(fault) for fault in refused.value.faults} == {SourceError, TokenizerError}
    assert contents.names(place.uri) == before


def test_a_store_that_never_answers_is_a_fault_that_time_may_cure(
    place: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "SECONDS", 1.0)
    monkeypatch.delenv(DEADLINE_VARIABLE)
    proxy.fault = lambda _request: Fault.HOLD
    began = time.monotonic()
    with pytest.raises(PreflightError, match="no answer in 1 s") as late:
        preflight(Plan(reads={"source": str(place.uri)}, writes={"root": str(place.uri / "root")}))
    assert time.monotonic() - began < 10
    assert late.value.exit_code == 75


def test_a_slow_machine_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokenizer loads for longer than a store may take to answer."""
    monkeypatch.setattr(checks, "SECONDS", 0.2)

    def loads() -> str:
        time.sleep(0.6)
        return "loaded"

    plan = Plan(reads={}, writes={"root": str(tmp_path / "root")}, own={"tokenizer": loads})
    assert preflight(plan)["tokenizer"] == "loaded"


def test_a_silent_store_is_named_while_the_tokenizer_loads(
    place: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "SECONDS", 1.0)
    monkeypatch.delenv(DEADLINE_VARIABLE)
    proxy.fault = lambda _request: Fault.HOLD
    loaded = Event()
    plan = Plan(reads={"source": str(place.uri)}, writes={}, own={"tokenizer": lambda: loaded.wait(60)})
    with pytest.raises(PreflightError, match="reads source: no answer in 1 s") as late:
        preflight(plan)
    assert len(late.value.faults) == 1
    assert not loaded.is_set()
    loaded.set()


def test_a_step_of_another_commit_than_the_pipeline_is_refused_before_it_works(cli: Cli, tmp_path: Path) -> None:
    """`cli` states the commit 000…"""
    report = tmp_path / "report.json"
    done = cli("step", "verify-tokenizer", "--report", report, SPANLOOM_EXPECTED_GIT_SHA="3" * 40)
    assert done.returncode == 1
    assert f"the pipeline was compiled for {'3' * 40}" in done.stderr
    assert not report.exists()
    same = cli("step", "verify-tokenizer", "--report", report, SPANLOOM_EXPECTED_GIT_SHA="0" * 40)
    assert same.returncode == 0, same.stderr


def test_a_model_that_does_not_load_is_a_fault(cli: Cli, source: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text("{}")
    done = cli("preflight", "model_chat", f"source_uri={source}", f"model_uri={model}", f"dataset_root={tmp_path}/root")
    assert done.returncode == 1
    assert "1 fault," in done.stderr
    assert str(model / "tokenizer.json") in done.stderr


@pytest.mark.parametrize("pipeline", sorted(PIPELINES))
def test_every_place_of_a_pipeline_is_read_or_written(pipeline: str) -> None:
    name = pipeline.removesuffix("_shards")
    listed = list_of(name, 4 if pipeline.endswith("_shards") else None)
    places = [each for each in listed.PARAMETERS if each.endswith(("_uri", "_root"))]
    assert sorted([*listed.READS, *listed.WRITES]) == sorted(places)
