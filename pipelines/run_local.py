"""Runs the compiled pipeline on this machine, each task in its own image: `make pipeline-local`.

In: a `synth_harmony_v1` folder, a working folder. Out: the dataset under WORK/dataset, or an error, after the failing
step's own message. Or, as on a cluster, both in an object store: then `source_uri` and `dataset_root` are parameters,
and the Docker network of the store is named. Containers run as the caller, since they write into the caller's folder,
and are otherwise as restricted as on a cluster: read-only root, no capabilities, only the store's network.
"""

import argparse
import os
import shutil
import sys
import warnings
from pathlib import Path

import yaml
from kfp import components, local

from pipelines.arguments import run_arguments


def run(
    pipeline: Path,
    source: Path | None,
    work: Path,
    words: list[str],
    *,
    network: str | None = None,
    environment: dict[str, str] | None = None,
) -> str:
    """Runs `pipeline` with the parameters `words` (`NAME=VALUE`) and returns the root of its dataset.

    Without a folder `source`, `words` name source and dataset root. `network`, `environment`: of each container.

    Raises RuntimeError if a task failed, and if files are missing: `kfp.local` reports success for a container that is
    gone before it was polled.
    """
    work.mkdir(parents=True, exist_ok=True)
    staged, root, workspace = work / "source", work / "dataset", work / "workspace"
    text, tasks = _without_retries(pipeline.read_text())
    task = components.load_component_from_text(text)
    for folder in (staged, root, work / "dataset.work", workspace, *work.glob(f"{task.name}-*")):
        shutil.rmtree(folder, ignore_errors=True)
    if source is not None:
        shutil.copytree(source, staged)
        words = [f"source_uri={staged}", f"dataset_root={root}", *words]
    arguments = run_arguments(task, words)
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
    return str(arguments["dataset_root"])


def _without_retries(text: str) -> tuple[str, int]:
    """The pipeline without retries (no node fails here, and backoff would take minutes), and the number of its
    tasks."""
    documents = list(yaml.safe_load_all(text))
    tasks = documents[0]["root"]["dag"]["tasks"]
    for task in tasks.values():
        task.pop("retryPolicy", None)
    return yaml.safe_dump_all(documents), len(tasks)


def _variable(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not (name and found):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the compiled pipeline in Docker containers on this machine.")
    parser.add_argument("--pipeline", type=Path, default=Path("pipelines/synth_kd.yaml"))
    parser.add_argument("--source", type=Path, help="a folder; without it source_uri= and dataset_root= are given")
    parser.add_argument("--work", type=Path, required=True, help="emptied of what an earlier run left")
    parser.add_argument("--network", help="Docker network of the containers, in which they find the object store")
    parser.add_argument("--env", type=_variable, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("parameters", nargs="*", metavar="NAME=VALUE")
    options = parser.parse_args()
    try:
        root = run(
            options.pipeline.resolve(),
            options.source and options.source.resolve(),
            options.work.resolve(),
            options.parameters,
            network=options.network,
            environment=dict(options.env),
        )
        print(root)
    except (RuntimeError, ValueError) as failure:
        sys.exit(f"error: {failure}")


if __name__ == "__main__":
    main()
