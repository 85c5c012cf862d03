"""Merges equal components of a compiled pipeline: kfp writes one per task, even if only the name differs.

In: the YAML that kfp compiles. Out: the same tasks with the same commands, sizes and volumes, in YAML of half the size,
with a mapping of plain values on one line.
Kubernetes limits the size of an object, so pipelines of many shards need this. kfp's local runner does not support it:
it names the folder of a task by its component.
"""

from typing import Any

import yaml

Spec = dict[str, Any]


def share_components(text: str) -> str:
    """The YAML with equal components, executors and their Kubernetes settings merged, each under its first name."""
    comments = [line for line in text.splitlines(keepends=True) if line.startswith("#")]
    spec, *platform = yaml.load_all(text, yaml.CSafeLoader)
    executors: Spec = spec["deploymentSpec"]["executors"]
    placed: Spec = platform[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"] if platform else {}
    kept: dict[str, str] = {}
    renamed: dict[str, str] = {}
    for name in sorted(spec["components"], key=lambda name: (len(name), name)):
        component = spec["components"][name]
        if "executorLabel" not in component:
            continue
        label = component["executorLabel"]
        about = {**component, "executorLabel": executors[label], "placed": placed.get(label)}
        renamed[name] = kept.setdefault(yaml.dump(about, Dumper=yaml.CSafeDumper), name)
    for name, first in renamed.items():
        if name != first:
            label = spec["components"].pop(name)["executorLabel"]
            del executors[label]
            placed.pop(label, None)
    for graph in (spec["root"], *spec["components"].values()):
        for task in graph.get("dag", {}).get("tasks", {}).values():
            reference = task["componentRef"]
            reference["name"] = renamed.get(reference["name"], reference["name"])
    return "".join(comments) + yaml.dump_all(
        [spec, *platform], Dumper=yaml.CSafeDumper, sort_keys=True, default_flow_style=None, width=100_000
    )
