"""Every value set renders, lints strictly, and is what Kubernetes and Trainer take."""

import json
import re
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
import yaml

from support.each import each
from support.helm_chart import (
    CHART,
    KUBERNETES_VERSIONS,
    VALUE_SETS,
    helm,
    of_kind,
    pods,
    render,
    render_set,
    runtime_pods,
)

pytestmark = pytest.mark.usefixtures("helm")

KINDS = {
    "default-values.yaml": ["PersistentVolumeClaim", "ServiceAccount"],
    "fetch-gcs-values.yaml": ["Job", "PersistentVolumeClaim", "ServiceAccount"],
    "fetch-s3-values.yaml": ["Job"],
    "train-gcs-fuse-values.yaml": ["ServiceAccount", "TrainJob"],
    "train-initializer-values.yaml": ["ClusterTrainingRuntime", "PersistentVolumeClaim", "ServiceAccount", "TrainJob"],
    "train-pvc-values.yaml": ["PersistentVolumeClaim", "ServiceAccount", "TrainJob"],
    "traces-postgres-values.yaml": ["Deployment", "Service"],
    "traces-sqlite-values.yaml": [
        *("Deployment", "PersistentVolumeClaim", "PersistentVolumeClaim", "Service", "ServiceAccount"),
    ],
}


@cache
def trainers() -> dict[str, Any]:
    """Kinds of Kubeflow Trainer, with its models of them, which take a second to import."""
    from kubeflow_trainer_api.models.trainer_v1alpha1_cluster_training_runtime import (
        TrainerV1alpha1ClusterTrainingRuntime,
    )
    from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob

    return {"ClusterTrainingRuntime": TrainerV1alpha1ClusterTrainingRuntime, "TrainJob": TrainerV1alpha1TrainJob}


def test_every_value_set_is_known_here() -> None:
    assert sorted(KINDS) == VALUE_SETS


@each("name", VALUE_SETS)
def test_lint_strict_finds_nothing(name: str) -> None:
    result = helm("lint", "--strict", str(CHART), "--values", str(CHART / "ci" / name))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "[WARNING]" not in result.stdout


@each("name", VALUE_SETS)
def test_a_value_set_renders_its_kinds_and_no_other(name: str) -> None:
    assert sorted(document["kind"] for document in render_set(name)) == KINDS[name]


@each("version", KUBERNETES_VERSIONS)
@each("name", VALUE_SETS)
def test_manifests_and_their_pods_fit_the_schemas_of_kubernetes(name: str, version: str) -> None:
    documents = render_set(name, version=version)
    checked = [document for document in documents if document["kind"] not in trainers()] + pods(documents)
    for document in checked:
        assert kubernetes_validate.validate(document, version, strict=True).startswith(version.rsplit(".", 1)[0])


@each("name", [name for name, kinds in KINDS.items() if "TrainJob" in kinds])
def test_trainer_understands_every_field(name: str) -> None:
    for kind, model in trainers().items():
        for document in of_kind(render_set(name), kind):
            parsed = model.from_dict(document)
            assert parsed is not None
            # The models drop fields that they do not know, as an API server does; so nothing may be missing after a
            # round trip.
            assert json.loads(json.dumps(parsed.to_dict(), default=str)) == document


def test_the_initializer_fetches_into_the_claim_that_training_reads_afterwards() -> None:
    documents = render_set("train-initializer-values.yaml")
    (runtime,), (job,) = of_kind(documents, "ClusterTrainingRuntime"), of_kind(documents, "TrainJob")
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    initializer, node = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert node["dependsOn"] == [{"name": initializer["name"], "status": "Complete"}]
    # By these labels and names Trainer finds what it lays a TrainJob's initializer and trainer over.
    for replicated, step in ((initializer, "dataset-initializer"), (node, "trainer")):
        assert replicated["template"]["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"] == step
    pod = runtime_pods(runtime)["dataset-initializer"]["spec"]
    (container,) = pod["containers"]
    assert container["name"] == "dataset-initializer"
    assert container["command"] == ["spanloom", "fetch", "$(STORAGE_URI)", "/data/synth_kd_v1"]
    (uri,) = (variable["value"] for variable in container["env"] if variable["name"] == "STORAGE_URI")
    assert job["spec"]["initializer"]["dataset"]["storageUri"] == uri == "s3://my-bucket/synth_kd_v1"
    trained = pods(documents)[-1]["spec"]
    claims = [
        {volume["name"]: volume["persistentVolumeClaim"] for volume in each["volumes"] if volume["name"] == "dataset"}
        for each in (pod, trained)
    ]
    assert claims[0] == {"dataset": {"claimName": "kd-spanloom-dataset"}}
    assert claims[1] == {"dataset": {"claimName": "kd-spanloom-dataset", "readOnly": True}}


def test_trainers_models_would_show_an_unknown_field() -> None:
    (job,) = of_kind(render_set("train-pvc-values.yaml"), "TrainJob")
    job["spec"]["podTemplateOverrides"] = []
    parsed = trainers()["TrainJob"].from_dict(job)
    assert parsed is not None
    assert "podTemplateOverrides" not in parsed.to_dict()["spec"]


@each("release", ["kd", "7days", "a.b", "x" * 53, "spanloom", "my-spanloom-2"])
def test_names_are_what_trainer_and_its_pods_can_bear(release: str) -> None:
    documents = render_set("train-pvc-values.yaml", release=release)
    (job,) = of_kind(documents, "TrainJob")
    name = job["metadata"]["name"]
    # The rule on metadata.name in Trainer's resource definition: RFC 1035.
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name)
    # JobSet names its pods <TrainJob>-<replicated job>-<job index>-<pod index>-<five characters>.
    assert len(f"{name}-node-0-99-xxxxx") <= 63
    for document in documents:
        assert document["metadata"]["namespace"] == "training"


def test_equal_values_give_equal_names_and_other_values_give_others() -> None:
    def names(*arguments: str) -> list[str]:
        documents = render_set("train-pvc-values.yaml", *arguments)
        documents += render_set("fetch-gcs-values.yaml", *arguments)
        return [job["metadata"]["name"] for kind in ("Job", "TrainJob") for job in of_kind(documents, kind)]

    fetch, train = names()
    assert names() == [fetch, train]
    other_fetch, same_train = names("--set", "fetch.uri=gs://my-bucket/other")
    assert other_fetch != fetch
    assert same_train == train
    same_fetch, other_train = names("--set", "train.flags[0]=--sequence-length=2048")
    assert other_train != train
    assert same_fetch == fetch
    # `suspend` is the one field that Trainer lets change: it must not make another job.
    assert names("--set", "train.suspend=true") == [fetch, train]
    # Releases that differ in their first character alone have names of their own.
    claims = {of_kind(render(release=name), "PersistentVolumeClaim")[0]["metadata"]["name"] for name in ("7d", "8d")}
    assert len(claims) == 2


def test_the_charts_version_is_the_packages() -> None:
    pyproject = (CHART.parents[1] / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"$', pyproject, re.MULTILINE)
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert version is not None
    assert chart["appVersion"] == version[1]


def test_a_digest_takes_the_place_of_the_tag() -> None:
    (job,) = of_kind(render_set("fetch-gcs-values.yaml"), "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"ghcr.io/spanloom/spanloom-validate-alignment@sha256:{'a' * 64}"
