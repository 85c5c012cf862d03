"""charts/spanloom as helm renders it. In: value sets. Out: manifests, and the pods they start."""

import copy
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

CHART = Path(__file__).parents[2] / "charts/spanloom"
VALUE_SETS = sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))
# The oldest Kubernetes of Chart.yaml and the newest whose schemas kubernetes-validate carries.
KUBERNETES_VERSIONS = ("1.29.0", "1.37.0")


def helm_binary() -> str | None:
    return os.environ.get("SPANLOOM_HELM") or shutil.which("helm")


def helm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    binary = helm_binary()
    assert binary is not None, "the `helm` fixture comes first"
    return subprocess.run([binary, *arguments], capture_output=True, text=True, check=False)


def template(
    *arguments: str, release: str = "kd", version: str = KUBERNETES_VERSIONS[0]
) -> "subprocess.CompletedProcess[str]":
    return helm("template", release, str(CHART), "--namespace", "training", "--kube-version", version, *arguments)


def render(*arguments: str, **options: str) -> list[Manifest]:
    result = template(*arguments, **options)
    assert result.returncode == 0, result.stderr
    return [document for document in yaml.safe_load_all(result.stdout) if document]


def render_set(name: str, *arguments: str, **options: str) -> list[Manifest]:
    return render("--values", str(CHART / "ci" / name), *arguments, **options)


def of_kind(documents: list[Manifest], kind: str) -> list[Manifest]:
    return [document for document in documents if document["kind"] == kind]


def train_pod(train_job: Manifest) -> Manifest:
    """The pod that Trainer makes: the runtime's container `node`, what `trainer` says of it, and the patch."""
    (patch,) = train_job["spec"]["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert job["name"] == "node"
    patched = copy.deepcopy(job["template"]["spec"]["template"])
    (container,) = patched["spec"]["containers"]
    trainer = train_job["spec"]["trainer"]
    patched["spec"]["containers"] = [
        {key: trainer[key] for key in ("image", "command", "args", "env") if key in trainer}
        | {"resources": trainer["resourcesPerNode"]}
        | container
    ]
    return {"apiVersion": "v1", "kind": "Pod", **patched}


def runtime_pods(runtime: Manifest) -> dict[str, Manifest]:
    """The pods of a ClusterTrainingRuntime by the name of their replicated job."""
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    return {job["name"]: {"apiVersion": "v1", "kind": "Pod", **job["template"]["spec"]["template"]} for job in jobs}


def pods(documents: list[Manifest]) -> list[Manifest]:
    """Every pod that these manifests start."""
    started = [*of_kind(documents, "Job"), *of_kind(documents, "Deployment")]
    fetched = [{"apiVersion": "v1", "kind": "Pod", **manifest["spec"]["template"]} for manifest in started]
    runtimes = [runtime_pods(runtime) for runtime in of_kind(documents, "ClusterTrainingRuntime")]
    # The runtime's `node` has only what the TrainJob is laid over.
    initializers = [runtime["dataset-initializer"] for runtime in runtimes]
    return fetched + initializers + [train_pod(job) for job in of_kind(documents, "TrainJob")]
