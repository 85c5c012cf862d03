"""The compiled pipeline: what is committed is what the source says, and the graph is the one of the design."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import REPOSITORY
from pipelines.compile import PIPELINES, compile_pipelines, main
from pipelines.of_list import pipeline_of
from pipelines.placement import Placement
from support.nightly import NIGHTLY, nightly


@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    spec, _ = yaml.load_all((REPOSITORY / "pipelines/synth_kd.yaml").read_text(), yaml.CSafeLoader)
    return dict(spec)


def tasks(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return dict(spec["root"]["dag"]["tasks"])


def compiled(
    folder: Path, placement: Placement | None = None, images: dict[str, str] | None = None, shards: int | None = None
) -> list[Any]:
    files = compile_pipelines(folder, placement or Placement(), images or {}, shards)
    return [list(yaml.load_all(file.read_text(), yaml.CSafeLoader)) for file in files]


def before(dag: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    """Each task and those that it waits for, by their names."""
    names = {key: task["taskInfo"]["name"] for key, task in dag.items()}
    return {names[key]: {names[other] for other in task.get("dependentTasks", [])} for key, task in dag.items()}


def graph(shards: int) -> dict[str, set[str]]:
    """The pipeline of the design."""
    renders, writes = ({f"{step} {n:02d}" for n in range(shards)} for step in ("render-shard", "write-indexed"))
    return {
        "verify-tokenizer": set(),
        **{render: {"verify-tokenizer"} for render in renders},
        "assemble-split": renders,
        **{f"write-indexed {n:02d}": {f"render-shard {n:02d}"} for n in range(shards)},
        "assemble-manifest": writes | {"assemble-split"},
        **{f"validate-shard {n:02d}": {"assemble-manifest", "verify-tokenizer"} for n in range(shards)},
        "assemble-validation": {f"validate-shard {n:02d}" for n in range(shards)},
    }


def test_the_graph_is_the_one_of_the_design(committed: dict[str, Any]) -> None:
    assert before(tasks(committed)) == graph(4)


@pytest.mark.parametrize("shards", [1, 7])
def test_there_is_a_task_for_each_of_as_many_shards_as_are_asked_for(
    tmp_path: Path, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = {name: PIPELINES[name] for name in ("synth_kd", "synth_raw_to_kd")}
    monkeypatch.setattr("pipelines.compile.PIPELINES", both)
    (spec, _), (raw, _) = compiled(tmp_path, shards=shards)
    assert before(tasks(spec)) == graph(shards)
    converts = {f"convert-shard {n:02d}" for n in range(shards)}
    expected = {**graph(shards), **{convert: set[str]() for convert in converts}, "assemble-source": converts}
    for n in range(shards):
        expected[f"render-shard {n:02d}"] = {"assemble-source", "verify-tokenizer"}
    assert before(tasks(raw)) == expected
    for task in (*tasks(spec).values(), *tasks(raw).values()):
        if task["taskInfo"]["name"].startswith(("convert-shard", "render-shard")):
            assert task["inputs"]["parameters"]["shards"]["runtimeValue"]["constant"] == shards


EVERY_OPTION = Placement(
    pvc="datasets",
    node_selector=(("pool", "cpu"),),
    tolerations=(("spot", "true", "NoSchedule"),),
    scratch_class="fast",
    env=(("AWS_ENDPOINT_URL", "http://seaweedfs.kubeflow:9000"), ("AWS_DEFAULT_REGION", "us-east-1")),
    secret_env=tuple(("store-keys", key, key) for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")),
    config_map_env=(("settings", "deadline", "SPANLOOM_STORAGE_DEADLINE"),),
    ca_bundle=("store-ca", "ca.crt"),
    pull_secrets=("registry",),
    kueue_queue="team-a",
    kueue_priority="low",
)


@pytest.mark.parametrize("placement", [nightly(Placement()), EVERY_OPTION], ids=["plain", "every option"])
def test_a_pipeline_of_64_shards_is_small_enough_for_kubernetes(
    tmp_path: Path, placement: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd takes 1.5 MiB; 600 KB leave room for what Kubeflow adds. `make test` compiles the pipeline of most tasks."""
    if not NIGHTLY:
        monkeypatch.setattr("pipelines.compile.PIPELINES", {"synth_raw_to_kd": PIPELINES["synth_raw_to_kd"]})
    for file in compile_pipelines(tmp_path, placement, {}, shards=64):
        assert file.stat().st_size < 600_000, file.name


@pytest.mark.parametrize("shards", [0, 65])
def test_more_than_64_shards_are_refused(shards: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 64 shards, not {shards}"):
        pipeline_of("harmony.task_list", Placement(), shards)


@pytest.mark.parametrize("shards", ["0", "65", "-1", "four", ""])
def test_a_number_of_shards_that_there_cannot_be_is_wrong_usage(
    shards: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["compile", "--shards", shards])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "not a number of shards from 1 to 64" in capsys.readouterr().err


def test_every_container_says_its_command_and_its_size(committed: dict[str, Any]) -> None:
    for executor in committed["deploymentSpec"]["executors"].values():
        container = executor["container"]
        assert container["command"][0] == "spanloom"
        assert container["args"][-2:] == ["--executor-input", "{{$}}"]
        for size in ("resourceCpuRequest", "resourceCpuLimit", "resourceMemoryRequest", "resourceMemoryLimit"):
            assert container["resources"][size]
        tag = container["image"].rpartition(":")[2]
        assert re.fullmatch(r"\d+\.\d+\.\d+", tag), "a cache key holds the image's name: no tag that moves"


def test_every_task_ends_and_has_a_scratch_volume(committed: dict[str, Any]) -> None:
    _, platform = yaml.load_all((REPOSITORY / "pipelines/synth_kd.yaml").read_text(), yaml.CSafeLoader)
    placed = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert set(placed) == set(committed["deploymentSpec"]["executors"])
    for settings in placed.values():
        assert 0 < int(settings["activeDeadlineSeconds"]) <= 24 * 3600
        assert [mount["mountPath"] for mount in settings["emptyDirMounts"]] == ["/scratch"]


def test_volume_claim_and_node_pool_reach_every_task(tmp_path: Path) -> None:
    placement = Placement(
        pvc="datasets",
        node_selector=(("cloud.google.com/gke-spot", "true"),),
        tolerations=(("cloud.google.com/gke-spot", "true", "NoSchedule"),),
    )
    for _, platform in compiled(tmp_path, placement):
        for settings in platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values():
            (claim,) = settings["pvcMount"]
            assert (claim["constant"], claim["mountPath"]) == ("datasets", "/mnt/spanloom")
            assert settings["nodeSelector"]["labels"] == {"cloud.google.com/gke-spot": "true"}
            assert settings["tolerations"][0]["effect"] == "NoSchedule"


def images_of(spec: dict[str, Any]) -> set[str]:
    return {executor["container"]["image"] for executor in spec["deploymentSpec"]["executors"].values()}


def test_a_lock_pins_every_image(tmp_path: Path) -> None:
    files = [REPOSITORY / f"pipelines/{name}.yaml" for name in PIPELINES]
    committed = [next(yaml.load_all(file.read_text(), yaml.CSafeLoader)) for file in files]
    lock = {
        image: f"registry.example/{image.split('/')[-1].split(':')[0]}@sha256:{n:064x}"
        for n, image in enumerate(sorted(set().union(*map(images_of, committed))))
    }
    for spec, _ in compiled(tmp_path, images=lock):
        assert images_of(spec) <= set(lock.values())


def test_a_lock_that_lacks_an_image_is_no_lock(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="spanloom-assemble-manifest"):
        compiled(tmp_path, images={"ghcr.io/spanloom/other:0.1.0": "x"})


def test_the_pipeline_of_raw_synth_has_all_parameters_of_the_other() -> None:
    inner, outer = (
        next(yaml.load_all((REPOSITORY / f"pipelines/{name}.yaml").read_text(), yaml.CSafeLoader))["root"][
            "inputDefinitions"
        ]["parameters"]
        for name in ("synth_kd", "synth_raw_to_kd")
    )
    assert {name: outer[name] for name in inner} == inner
    assert set(outer) - set(inner) == {"raw_uri", "dataset_name", "convert_cpu", "convert_memory"}


def test_no_secret_is_compiled_in() -> None:
    for name in PIPELINES:
        text = (REPOSITORY / f"pipelines/{name}.yaml").read_text()
        assert not re.search(r"secret|password|access.?key|BEGIN .*KEY", text, flags=re.IGNORECASE)
