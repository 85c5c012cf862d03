"""Runs a compiled pipeline on this machine, each task in its own image: `make pipeline-local`, `make pipelines-local`.

In: a source folder, a working folder. Out: the dataset under WORK/dataset, or an error, after the failing step's own
message. Without a source folder all places are parameters, as on a cluster: below WORK, or in an object store, whose
Docker network is named. Containers run as the caller, since they write into the caller's folder, and are otherwise as
restricted as on a cluster: read-only root, no capabilities, only the store's network.
"""

import argparse
import os
import re
import shutil
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from kfp import components, local

from pipelines.arguments import run_arguments

CONDITION = re.compile(r"inputs\.parameter_values\['pipelinechannel--(\w+)'\] != ''")
"""Of a task whose list has `when`: its parameter is not empty, which is its default."""


def run(
    pipeline: Path,
    source: Path | None,
    work: Path,
    words: list[str],
    *,
    network: str | None = None,
    environment: dict[str, str] | None = None,
) -> list[str]:
    """Runs `pipeline` with the parameters `words` (`NAME=VALUE`) and returns the roots of its datasets.

    Without a folder `source`, `words` name all places. `network`, `environment`: of each container.

    Raises RuntimeError if a task failed, and if files are missing: `kfp.local` reports success for a container that is
    gone before it was polled.
    """
    work.mkdir(parents=True, exist_ok=True)
    staged, root, workspace = work / "source", work / "dataset", work / "workspace"
    documents = list(yaml.safe_load_all(pipeline.read_text()))
    _drop_retries(documents[0])
    task = components.load_component_from_text(yaml.safe_dump_all(documents))
    # Places that `words` name may be in WORK too, and are the caller's.
    ours = (staged, root, work / "dataset.work") if source is not None else ()
    for folder in (*ours, workspace, *work.glob(f"{task.name}-*")):
        shutil.rmtree(folder, ignore_errors=True)
    if source is not None:
        shutil.copytree(source, staged)
        words = [f"source_uri={staged}", f"dataset_root={root}", *words]
    arguments = run_arguments(task, words)
    tasks = containers_of(documents[0], arguments)
    runner = local.DockerRunner(
        user=f"{os.getuid()}:{os.getgid()}",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        network_mode=network or "none",
        environment=environment or {},
        tmpfs={"/tmp": "mode=1777", "/scratch": "mode=1777"},
    )
    warnings.filterwarnings("ignore", message=".* have no effect in the current local runner")
    # The runner mounts one folder, the pipeline root, into every container: all paths are in it.
    local.init(runner=runner, pipeline_root=str(work), workspace_root=str(workspace))
    task(**arguments)
    said = sorted(work.glob(f"{task.name}-*/*/executor_output.json"))
    if len(said) != tasks:
        raise RuntimeError(f"{len(said)} of {tasks} tasks left an executor output under {work}")
    if source is not None and not (root / "manifest.json").is_file():
        raise RuntimeError(f"no task failed, but there is no manifest.json in {root}")
    return [str(value) for name, value in arguments.items() if name.endswith("_root")]


def _dags(specification: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The components that are made of tasks: the pipeline itself, and the tasks under a condition."""
    components = [specification["root"], *specification["components"].values()]
    return [component["dag"] for component in components if "dag" in component]


def _drop_retries(specification: Mapping[str, Any]) -> None:
    """No node fails here, and backoff would take minutes."""
    for dag in _dags(specification):
        for task in dag["tasks"].values():
            task.pop("retryPolicy", None)


def containers_of(
    specification: Mapping[str, Any], arguments: Mapping[str, object], component: Mapping[str, Any] | None = None
) -> int:
    """The number of containers of a run: without those under a condition whose parameter is empty.

    `component`: count its tasks alone, instead of those of the whole pipeline.
    """
    component = specification["root"] if component is None else component
    if "dag" not in component:
        return 1
    return sum(
        containers_of(specification, arguments, specification["components"][task["componentRef"]["name"]])
        for task in component["dag"]["tasks"].values()
        if all(arguments.get(name) for name in CONDITION.findall(task.get("triggerPolicy", {}).get("condition", "")))
    )


def _variable(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not (name and found):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a compiled pipeline in Docker containers on this machine.")
    parser.add_argument("--pipeline", type=Path, default=Path("pipelines/synth_kd.yaml"))
    parser.add_argument("--source", type=Path, help="a folder; without it all places are given as parameters")
    parser.add_argument(
        "--work", type=Path, required=True, help="the folder that containers see, emptied of an earlier run"
    )
    parser.add_argument("--network", help="Docker network of the containers, in which they find the object store")
    parser.add_argument("--env", type=_variable, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("parameters", nargs="*", metavar="NAME=VALUE")
    options = parser.parse_args()
    try:
        roots = run(
            options.pipeline.resolve(),
            options.source and options.source.resolve(),
            options.work.resolve(),
            options.parameters,
            network=options.network,
            environment=dict(options.env),
        )
        print(*roots, sep="\n")
    except (RuntimeError, ValueError) as failure:
        sys.exit(f"error: {failure}")


if __name__ == "__main__":
    main()
