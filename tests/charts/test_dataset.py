"""Where the dataset comes from and who may write to it."""

from pathlib import Path

import pytest

from spanloom.training.runs.script import parse
from support import examples
from support.each import each
from support.helm_chart import VALUE_SETS, Manifest, of_kind, pods, render, render_set

pytestmark = pytest.mark.usefixtures("helm")

TRAIN_SETS = [name for name in VALUE_SETS if name.startswith("train-")]
FETCH_SETS = [name for name in VALUE_SETS if name.startswith("fetch-")]


def volume(pod: Manifest, name: str) -> Manifest:
    (found,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == name]
    return found


@each("name", TRAIN_SETS)
def test_nothing_writes_to_the_dataset_through_the_train_job(name: str) -> None:
    *_, pod = pods(render_set(name))  # after that of a dataset initializer
    dataset = volume(pod, "dataset")
    source = dataset.get("persistentVolumeClaim") or dataset["csi"]
    assert source["readOnly"] is True
    mounts = [mount for container in pod["spec"]["containers"] for mount in container["volumeMounts"]]
    assert [mount["readOnly"] for mount in mounts if mount["name"] == "dataset"] == [True]
    # No second way to the same bytes: neither another volume of that claim, nor a mount below the dataset's.
    claims = [v["persistentVolumeClaim"]["claimName"] for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v]
    assert len(claims) == len(set(claims))
    (place,) = [mount["mountPath"] for mount in mounts if mount["name"] == "dataset"]
    assert not [mount for mount in mounts if mount["mountPath"].startswith(f"{place}/")]


@each("name", TRAIN_SETS)
def test_training_reads_where_the_dataset_is_mounted_and_writes_elsewhere(name: str) -> None:
    documents = render_set(name)
    (job,) = of_kind(documents, "TrainJob")
    trainer = job["spec"]["trainer"]
    assert trainer["command"][-2:] == ["torch.distributed.run", "/opt/examples/training/gpt.py"]
    flags = dict(flag.split("=", 1) for flag in trainer["args"] if "=" in flag)
    *_, pod = pods(documents)
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]}
    assert flags["--root"].startswith(mounts["dataset"] + "/")
    assert flags["--index-cache"] == mounts["index-cache"]
    assert flags["--output"] == mounts["output"]


@each("name", TRAIN_SETS)
def test_the_training_entry_takes_the_flags_of_the_train_job(name: str) -> None:
    (job,) = of_kind(render_set(name), "TrainJob")
    arguments = job["spec"]["trainer"]["args"]
    assert f"--root={parse(examples.load(examples.GPT).Options, '', arguments).root}" in arguments


def test_the_index_cache_and_the_output_are_scratch_unless_a_claim_is_named() -> None:
    (scratch,) = pods(render_set("train-gcs-fuse-values.yaml"))
    (claimed,) = pods(render_set("train-pvc-values.yaml"))
    for name, claim in (("index-cache", "index-cache"), ("output", "checkpoints")):
        assert volume(scratch, name) == {"name": name, "emptyDir": {"sizeLimit": "20Gi"}}
        assert volume(claimed, name) == {"name": name, "persistentVolumeClaim": {"claimName": claim}}


def test_training_mounts_the_claim_that_fetch_fills_at_the_same_path() -> None:
    documents = render("--set", "fetch.enabled=true,fetch.uri=gs://my-bucket/kd,train.enabled=true")
    (claim,) = of_kind(documents, "PersistentVolumeClaim")
    fetch, train = pods(documents)
    for pod in (fetch, train):
        assert volume(pod, "dataset")["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert fetch["spec"]["containers"][0]["command"] == ["spanloom", "fetch", "gs://my-bucket/kd", "/data/synth_kd_v1"]
    assert "--root=/data/synth_kd_v1" in train["spec"]["containers"][0]["args"]


@each("name", FETCH_SETS)
def test_fetch_may_write_to_the_claim(name: str) -> None:
    *_, pod = pods(render_set(name))  # after that of a dataset initializer
    assert "readOnly" not in volume(pod, "dataset")["persistentVolumeClaim"]
    (mount,) = [mount for mount in pod["spec"]["containers"][0]["volumeMounts"] if mount["name"] == "dataset"]
    assert "readOnly" not in mount


def test_a_bucket_is_mounted_by_gcs_fuse_as_the_pods_user() -> None:
    (pod,) = pods(render_set("train-gcs-fuse-values.yaml"))
    assert pod["metadata"]["annotations"] == {"gke-gcsfuse/volumes": "true", "gke-gcsfuse/memory-limit": "4Gi"}
    assert volume(pod, "dataset")["csi"] == {
        "driver": "gcsfuse.csi.storage.gke.io",
        "readOnly": True,
        "volumeAttributes": {
            "bucketName": "my-bucket",
            "mountOptions": "implicit-dirs,uid=20000,gid=20000,file-cache:enable-parallel-downloads:true",
            "fileCacheCapacity": "200Gi",
        },
    }


def test_a_claim_needs_no_sidecar_and_a_bucket_no_claim() -> None:
    (claimed,) = pods(render_set("train-pvc-values.yaml"))
    assert "annotations" not in claimed["metadata"]
    assert not of_kind(render_set("train-gcs-fuse-values.yaml"), "PersistentVolumeClaim")


def test_the_claim_outlives_the_release_unless_asked_otherwise() -> None:
    (kept,) = of_kind(render(), "PersistentVolumeClaim")
    (dropped,) = of_kind(render("--set", "dataset.pvc.keep=false"), "PersistentVolumeClaim")
    assert kept["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in dropped["metadata"]


def test_large_numbers_stay_whole(tmp_path: Path) -> None:
    """Templates get the numbers of a values file as floats, which print as 1.00000066e+09."""
    values = tmp_path / "values.yaml"
    values.write_text(
        "security: {runAsUser: 1000000660, runAsGroup: 1000000660, fsGroup: 1000000660}\n"
        "dataset: {volume: gcsFuse, gcsFuse: {bucket: my-bucket}}\n"
        "train: {enabled: true}\n"
    )
    (pod,) = pods(render("--values", str(values)))
    context = pod["spec"]["securityContext"]
    # As text: 1.00000066e+09 is the same number to Python, but not to Kubernetes.
    assert [str(context[key]) for key in ("runAsUser", "runAsGroup", "fsGroup")] == ["1000000660"] * 3
    options = volume(pod, "dataset")["csi"]["volumeAttributes"]["mountOptions"]
    assert options == "implicit-dirs,uid=1000000660,gid=1000000660"
