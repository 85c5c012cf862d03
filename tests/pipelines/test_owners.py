"""Options of the compile for the owner of a cluster: each task carries them, as kfp's own types read them."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import json_format
from kfp.kubernetes import kubernetes_executor_config_pb2 as types
from kubernetes.utils.quantity import parse_quantity

from pipelines.compile import PIPELINES, main
from spanloom.errors import SpanloomError
from spanloom.tasks.stage import scratch_size
from support.nightly import NIGHTLY

SECRET_ENV = "AWS_ACCESS_KEY_ID=mlpipeline-minio-artifact:accesskey"
OWNER = (
    *("--store-endpoint", "http://seaweedfs.kubeflow:9000", "--env", "AWS_DEFAULT_REGION=us-east-1"),
    *("--env-secret", SECRET_ENV, "--env-secret", "AWS_SECRET_ACCESS_KEY=mlpipeline-minio-artifact:secretkey"),
    *("--env-config-map", "SPANLOOM_STORAGE_DEADLINE=spanloom:deadline", "--ca-bundle", "store-ca:ca.crt"),
    *("--image-pull-secret", "registry", "--image-pull-secret", "mirror"),
    *("--node-selector", "pool=cpu", "--toleration", "spot=true:NoSchedule"),
    *("--kueue-queue", "team-a", "--kueue-priority", "low", "--scratch", "300Gi", "--scratch-class", "fast"),
)


NAMES = sorted(PIPELINES) if NIGHTLY else ["synth_kd"]


def compiled(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, list[Any]]:
    """Pipeline name → its specification and its platform, as the command writes them; of one, nightly of all."""
    monkeypatch.setattr("pipelines.compile.PIPELINES", {name: PIPELINES[name] for name in NAMES})
    monkeypatch.setattr(sys, "argv", ["compile", "--out", str(folder), *options])
    main()
    return {file.stem: list(yaml.load_all(file.read_text(), yaml.CSafeLoader)) for file in folder.glob("*.yaml")}


def executors(node: Any) -> list[dict[str, Any]]:
    """All containers below a specification; nested pipelines have theirs in it too."""
    return [executor["container"] for executor in node["deploymentSpec"]["executors"].values()]


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        return compiled(tmp_path_factory.mktemp("owned"), monkeypatch, *OWNER)


def test_all_pipelines_are_compiled(pipelines: dict[str, list[Any]]) -> None:
    assert sorted(pipelines) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_task_carries_what_the_owner_gave(pipelines: dict[str, list[Any]], name: str) -> None:
    spec, platform = pipelines[name]
    configured = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert configured.keys() == spec["deploymentSpec"]["executors"].keys()
    for written in configured.values():
        config = json_format.ParseDict(written, types.KubernetesExecutorConfig())
        (secret,) = {env.secret_name for env in config.secret_as_env}
        assert secret == "mlpipeline-minio-artifact"
        pairs = {(pair.secret_key, pair.env_var) for env in config.secret_as_env for pair in env.key_to_env}
        assert pairs == {("accesskey", "AWS_ACCESS_KEY_ID"), ("secretkey", "AWS_SECRET_ACCESS_KEY")}
        (from_map,) = config.config_map_as_env
        assert [(pair.config_map_key, pair.env_var) for pair in from_map.key_to_env] == [
            ("deadline", "SPANLOOM_STORAGE_DEADLINE")
        ]
        (volume,) = config.config_map_as_volume
        assert volume.mount_path == "/etc/spanloom-ca"
        assert [pull.secret_name for pull in config.image_pull_secret] == ["registry", "mirror"]
        assert dict(config.node_selector.labels) == {"pool": "cpu"}
        assert [(taint.key, taint.value, taint.effect) for taint in config.tolerations] == [
            ("spot", "true", "NoSchedule")
        ]
        assert dict(config.pod_metadata.labels) == {
            "kueue.x-k8s.io/queue-name": "team-a",
            "kueue.x-k8s.io/priority-class": "low",
        }
        (scratch,) = config.generic_ephemeral_volume
        assert (scratch.mount_path, scratch.size, scratch.storage_class_name) == ("/scratch", "300Gi", "fast")
        assert len(config.empty_dir_mounts) == 0
    for container in executors(spec):
        named = {variable["name"]: variable["value"] for variable in container["env"]}
        assert named.pop("SPANLOOM_SCRATCH_SIZE", "300Gi") == "300Gi"  # of the task that compares it
        assert named == {
            "AWS_ENDPOINT_URL": "http://seaweedfs.kubeflow:9000",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CA_BUNDLE": "/etc/spanloom-ca/ca.crt",
        }


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--env", "AWS_PROFILE"),
        ("--env", "2=3"),
        ("--env-secret", "AWS_ACCESS_KEY_ID"),
        ("--env-secret", "AWS_ACCESS_KEY_ID=secret"),
        ("--env-secret", "secret:key=AWS_ACCESS_KEY_ID"),
        ("--env-config-map", "NAME=Upper:key"),
        ("--ca-bundle", "store-ca"),
        ("--store-endpoint", "seaweedfs:9000"),
        *(("--scratch", size) for size in ("lots", "10GB", "10gb", "0", "0Gi", "-1Gi", "1 Gi", "Gi", "10K", "1e", "")),
        *(("--toleration", taint) for taint in (":NoSchedule", "spot", "spot:Never", "=true:NoSchedule")),
    ],
)
def test_a_wrong_option_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        compiled(tmp_path, monkeypatch, option, value)
    assert f"argument {option}: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_toleration_without_a_value_is_of_any_taint_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = compiled(tmp_path, monkeypatch, "--toleration", "spot:NoSchedule", "--toleration", "gpu=a:NoExecute")
    _, platform = both["synth_kd"]
    for settings in platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"].values():
        assert settings["tolerations"] == [
            {"effect": "NoSchedule", "key": "spot", "operator": "Exists"},
            {"effect": "NoExecute", "key": "gpu", "operator": "Equal", "value": "a"},
        ]


@pytest.mark.parametrize("size", ["200Gi", "10G", "500k", "1.5Ti", ".5Gi", "1e12", "1073741824", "3Ei"])
def test_sizes_that_are_taken_are_those_of_kubernetes(size: str) -> None:
    """`parse_quantity` is of the client of Kubernetes."""
    assert scratch_size(size) == size
    assert parse_quantity(size) > 0


@pytest.mark.parametrize("size", ["lots", "10GB", "Gi", "", "0", "-1Gi"])
def test_sizes_that_are_refused_are_none_of_kubernetes(size: str) -> None:
    with pytest.raises(SpanloomError, match="not a size that Kubernetes takes"):
        scratch_size(size)
    with pytest.raises((ValueError, AssertionError)):
        assert parse_quantity(size) > 0
