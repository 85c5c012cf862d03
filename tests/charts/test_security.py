"""Whatever the values say, what the chart starts fits the `restricted` Pod Security Standard, and a little more."""

import pytest

from support.each import each
from support.helm_chart import VALUE_SETS, of_kind, pods, render_set

pytestmark = pytest.mark.usefixtures("helm")

STARTING_SETS = [name for name in VALUE_SETS if name != "default-values.yaml"]


@each("name", STARTING_SETS)
def test_no_pod_runs_as_root_or_gains_anything(name: str) -> None:
    started = pods(render_set(name))
    assert started
    for pod in started:
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert all(spec["securityContext"][key] > 0 for key in ("runAsUser", "runAsGroup", "fsGroup"))
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "privileged": False,
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            }


@each("name", STARTING_SETS)
def test_pods_mount_only_kinds_of_volume_that_restricted_allows(name: str) -> None:
    for pod in pods(render_set(name)):
        for volume in pod["spec"]["volumes"]:
            (kind,) = volume.keys() - {"name"}
            assert kind in {"persistentVolumeClaim", "csi", "emptyDir"}


@each("name", STARTING_SETS)
def test_a_read_only_root_leaves_places_to_write(name: str) -> None:
    for pod in pods(render_set(name)):
        scratch = {volume["name"] for volume in pod["spec"]["volumes"] if "emptyDir" in volume}
        for container in pod["spec"]["containers"]:
            places = {mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in scratch}
            # The images' HOME is /tmp, their SPANLOOM_SCRATCH /scratch.
            assert {"/tmp", "/scratch"} <= places


@each("name", STARTING_SETS)
def test_pods_use_the_account_and_get_no_token_for_the_kubernetes_api(name: str) -> None:
    documents = render_set(name)
    accounts = of_kind(documents, "ServiceAccount")
    for account in accounts:
        assert account["automountServiceAccountToken"] is False
    expected = accounts[0]["metadata"]["name"] if accounts else "builder"
    for pod in pods(documents):
        assert pod["spec"]["serviceAccountName"] == expected


def test_workload_identity_stands_on_the_account() -> None:
    (account,) = of_kind(render_set("fetch-gcs-values.yaml"), "ServiceAccount")
    assert account["metadata"]["annotations"] == {
        "iam.gke.io/gcp-service-account": "trainer@my-project.iam.gserviceaccount.com"
    }


def test_keys_come_by_reference_never_by_value() -> None:
    documents = render_set("fetch-s3-values.yaml")
    assert not of_kind(documents, "Secret")
    (pod,) = pods(documents)
    assert pod["spec"]["containers"][0]["envFrom"] == [{"secretRef": {"name": "minio-keys"}}]
