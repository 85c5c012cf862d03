"""Compiles pipelines to YAML: `make compile`.

In: the pipelines, their placement, and optionally the images' digests to pin. Out: one YAML file per pipeline.
Without options it writes the committed files; CI compiles again and compares.
"""

import argparse
import json
import re
from dataclasses import replace
from pathlib import Path

from kfp import compiler

from components.of_task import SIZES
from pipelines.of_list import MOST_SHARDS, pipeline_of
from pipelines.placement import Placement
from pipelines.shared_components import share_components

PIPELINES = {
    "synth_kd": "harmony.task_list",
    "synth_raw_to_kd": "harmony.convert.task_list",
    "packed_chat": "chat.task_list",
    "chess_games": "chess.task_list",
    "toolcalls_dataset": "toolcalls.task_list",
    "traces_dataset": "traces.task_list",
    "model_chat": "models.task_list",
    "harmony_chat": "harmony.chat_task_list",
    "teacher": "teacher_task_list",
    "packed_chat_shards": "chat.task_list:BY_SHARD",
    "toolcalls_dataset_shards": "toolcalls.task_list:BY_SHARD",
    "traces_dataset_shards": "traces.task_list:BY_SHARD",
    "model_chat_shards": "models.task_list:BY_SHARD",
}
"""Pipeline → its task list in src/spanloom/families/. `_shards`: with a task for each shard."""

MOST_BYTES = 600_000
"""Limit of a compiled pipeline as kfp writes it: Kubernetes limits an object to 1.5 MiB, and Kubeflow adds to it."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
REFERENCE = re.compile(r"(?P<variable>[A-Za-z_][A-Za-z0-9_]*)=(?P<object>[a-z0-9][a-z0-9.-]*):(?P<key>[A-Za-z0-9._-]+)")


def compile_pipelines(out: Path, placement: Placement, images: dict[str, str], shards: int | None = None) -> list[Path]:
    """Writes each pipeline under `out`, with its images replaced by those of `images`. Returns the files.

    `shards`: for the pipelines that have a task per shard; None uses their own number.
    Raises KeyError if `images` is not empty and lacks an image: a pipeline is pinned completely or not at all.
    """
    out.mkdir(parents=True, exist_ok=True)
    files = []
    for name, task_list in PIPELINES.items():
        file = out / f"{name}.yaml"
        compiler.Compiler().compile(pipeline_of(task_list, placement, shards), str(file))
        text = file.read_text()
        if len(text) > MOST_BYTES:
            text = share_components(text)
        if images:
            text = "".join(_pinned(line, images) for line in text.splitlines(keepends=True))
        file.write_text(text)
        files.append(file)
    return files


def _pinned(line: str, images: dict[str, str]) -> str:
    before, found, image = line.partition("image: ")
    return f"{before}{found}{images[image.strip()]}\n" if found and not before.strip() else line


def _label(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not (key and found and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _shards(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= MOST_SHARDS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of shards from 1 to {MOST_SHARDS}")
    return int(text)


def _taint(text: str) -> tuple[str, str | None, str]:
    label, _, effect = text.rpartition(":")
    if not label or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not KEY=VALUE:NoSchedule or KEY:NoSchedule (or PreferNoSchedule, NoExecute)"
        )
    return (*_label(label), effect) if "=" in label else (label, None, effect)


def _quantity(text: str) -> str:
    if SIZES["QUANTITY"].fullmatch(text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size that Kubernetes takes, such as 200Gi or 10G (Ki, Mi, Gi, Ti; k, M, G, T)"
        )
    return text


def _variable(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not (found and VARIABLE.fullmatch(name)):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def _reference(text: str) -> tuple[str, str, str]:
    match = REFERENCE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=OBJECT:KEY, such as AWS_ACCESS_KEY_ID=mlpipeline-minio-artifact:accesskey"
        )
    return match["object"], match["key"], match["variable"]


def _config_map_key(text: str) -> tuple[str, str]:
    config_map, _, key = text.partition(":")
    if not (config_map and key):
        raise argparse.ArgumentTypeError(f"{text!r} is not CONFIGMAP:KEY")
    return config_map, key


def _address(text: str) -> str:
    if not re.match(r"https?://[^/]", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an address with http:// or https://")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile the pipelines to YAML.")
    parser.add_argument("--out", type=Path, default=Path("pipelines"), help="folder for the YAML files")
    parser.add_argument("--lock", type=Path, help="digests that `make push` wrote: pins every image to its digest")
    parser.add_argument("--git-sha", help="the commit of the images: tasks with code of another one are refused")
    parser.add_argument(
        "--shards",
        type=_shards,
        metavar="N",
        help=f"tasks of each stage that has one for each shard, 1 to {MOST_SHARDS}",
    )
    parser.add_argument("--pvc", help="a volume claim to mount in every step, for a dataset root on a disk")
    parser.add_argument("--mount", default=Placement.mount, help="where it is mounted")
    parser.add_argument("--node-selector", type=_label, action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--toleration",
        type=_taint,
        action="append",
        default=[],
        metavar="KEY[=VALUE]:EFFECT",
        help="a taint that pods tolerate; without a value any of this key",
    )
    parser.add_argument(
        "--scratch",
        type=_quantity,
        default=Placement.scratch,
        metavar="SIZE",
        help="bound of the volume that inputs are staged in, such as 200Gi",
    )
    parser.add_argument("--scratch-class", metavar="CLASS", help="a storage class: scratch becomes a volume of it")
    parser.add_argument(
        "--store-endpoint", type=_address, metavar="URL", help="address of the store behind s3://: AWS_ENDPOINT_URL"
    )
    parser.add_argument("--env", type=_variable, action="append", default=[], metavar="NAME=VALUE", help="no secrets")
    parser.add_argument(
        "--env-secret", type=_reference, action="append", default=[], metavar="NAME=SECRET:KEY", help="from a Secret"
    )
    parser.add_argument("--env-config-map", type=_reference, action="append", default=[], metavar="NAME=CONFIGMAP:KEY")
    parser.add_argument(
        "--ca-bundle",
        type=_config_map_key,
        metavar="CONFIGMAP:KEY",
        help="PEM file with the CA of the store behind s3://",
    )
    parser.add_argument("--image-pull-secret", action="append", default=[], metavar="SECRET")
    parser.add_argument("--kueue-queue", metavar="QUEUE", help="Kueue's LocalQueue, as a label of the pods")
    parser.add_argument(
        "--kueue-priority", metavar="CLASS", help="Kueue's WorkloadPriorityClass, as a label of the pods"
    )
    options = parser.parse_args()
    endpoint = [("AWS_ENDPOINT_URL", options.store_endpoint)] if options.store_endpoint else []
    placement = Placement(
        pvc=options.pvc,
        mount=options.mount,
        node_selector=tuple(options.node_selector),
        tolerations=tuple(options.toleration),
        scratch=options.scratch,
        scratch_class=options.scratch_class,
        env=(*endpoint, *options.env),
        secret_env=tuple(options.env_secret),
        config_map_env=tuple(options.env_config_map),
        ca_bundle=options.ca_bundle,
        pull_secrets=tuple(options.image_pull_secret),
        kueue_queue=options.kueue_queue,
        kueue_priority=options.kueue_priority,
    )
    if options.git_sha:
        placement = replace(placement, env=(*placement.env, ("SPANLOOM_EXPECTED_GIT_SHA", options.git_sha)))
    images = json.loads(options.lock.read_bytes()) if options.lock else {}
    for file in compile_pipelines(options.out, placement, images, options.shards):
        print(file)


if __name__ == "__main__":
    main()
