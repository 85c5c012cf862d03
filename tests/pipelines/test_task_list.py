"""`spanloom tasks` and the compiled pipelines are one: commands, images, sizes and order of every task."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler

from pipelines.placement import HOUR, Placement
from pipelines.shared_components import share_components
from pipelines.synth_kd import synth_kd_pipeline, synth_raw_to_kd_pipeline
from spanloom.families.harmony.task_list import PIPELINES, stages_of

COMPILED = {"synth_kd": synth_kd_pipeline, "synth_raw_to_kd": synth_raw_to_kd_pipeline}
GIVEN = {"raw_uri": "s3://b/raw", "source_uri": "s3://b/source", "dataset_root": "s3://b/root"}
WORK = "s3://b/work"

Task = dict[str, Any]


def default(about: dict[str, Any]) -> str | None:
    """The default of a parameter, as a command has it; the compiled pipeline writes 64 as 64.0."""
    if "defaultValue" not in about:
        return None
    whole = about["parameterType"] == "NUMBER_INTEGER"
    return str(int(about["defaultValue"]) if whole else about["defaultValue"])


def compiled(pipeline: str, shards: int, folder: Path, given: dict[str, str]) -> dict[str, Task]:
    """What Kubeflow runs, by the name of each task, with the parameters `given` and the defaults of the others."""
    file = folder / "pipeline.yaml"
    compiler.Compiler().compile(COMPILED[pipeline](Placement(), shards), str(file))
    text = file.read_text()
    spec, platform = yaml.load_all(text if shards < 7 else share_components(text), yaml.CSafeLoader)
    declared = spec["root"]["inputDefinitions"]["parameters"]
    values = {name: given.get(name, default(about)) for name, about in declared.items()}
    times = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    return dict(tasks_of(spec, spec["root"]["dag"], values, set(), times))


def tasks_of(
    spec: dict[str, Any], dag: dict[str, Any], values: dict[str, Any], before: set[str], times: dict[str, Any]
):
    """The tasks of a graph and of the graphs in it. `before`: what the graph waits for."""
    names = {key: task["taskInfo"]["name"] for key, task in dag["tasks"].items()}
    for task in dag["tasks"].values():
        component = spec["components"][task["componentRef"]["name"]]
        own = {
            name: values[source["componentInputParameter"]]
            if "componentInputParameter" in source
            else whole(source["runtimeValue"]["constant"])
            for name, source in task.get("inputs", {}).get("parameters", {}).items()
        }
        after = {names[key] for key in task.get("dependentTasks", [])} or before
        if "dag" in component:
            yield from tasks_of(spec, component["dag"], own, after, times)
            continue
        artifacts = {
            name: place(
                names[source["taskOutputArtifact"]["producerTask"]], source["taskOutputArtifact"]["outputArtifactKey"]
            )
            for name, source in task.get("inputs", {}).get("artifacts", {}).items()
        }
        name = task["taskInfo"]["name"]
        container = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
        yield (
            name,
            {
                "argv": [*container["command"], *words(container["args"], own, artifacts, name)],
                "image": container["image"],
                "cpu": resolved(container["resources"]["resourceCpuLimit"], own, values),
                "memory": resolved(container["resources"]["resourceMemoryLimit"], own, values),
                "scratch": times[component["executorLabel"]]["emptyDirMounts"][0]["sizeLimit"],
                "hours": int(times[component["executorLabel"]]["activeDeadlineSeconds"]) // HOUR,
                "after": {re.sub(r" \d+$", "", each) for each in after},
            },
        )


def whole(constant: Any) -> Any:
    return int(constant) if isinstance(constant, float) and constant.is_integer() else constant


def place(task: str, output: str) -> str:
    """Where the task list has an output: `render-shard 03` and `ids` are WORK/render-shard/3/ids."""
    stage, _, number = task.partition(" ")
    return f"{WORK}/{stage}/{int(number)}/{output}" if number else f"{WORK}/{stage}/{output}"


def words(args: list[str], own: dict[str, Any], artifacts: dict[str, str], task: str) -> list[str]:
    """The arguments as the step sees them: filled in, without the executor input and options that are empty."""
    filled = []
    for word in args:
        if match := re.fullmatch(r"\{\{\$\.inputs\.parameters\['(\w+)'\]\}\}", word):
            filled.append(str(own[match[1]]))
        elif match := re.fullmatch(r"\{\{\$\.(in|out)puts\.artifacts\['(\w+)'\]\.path\}\}", word):
            filled.append(artifacts[match[2]] if match[1] == "in" else place(task, match[2]))
        else:
            filled.append(word)
    at = filled.index("--executor-input")
    assert filled[at + 1 :] == ["{{$}}"]
    pairs = zip(filled[:at:2], filled[1:at:2], strict=True)
    return [word for option, value in pairs if value for word in (option, value)]


def resolved(text: str, own: dict[str, Any], values: dict[str, Any]) -> str:
    match = re.fullmatch(r"\{\{\$\.inputs\.parameters\['pipelinechannel--(\w+)'\]\}\}", text)
    return text if match is None else str(own.get(f"pipelinechannel--{match[1]}", values.get(match[1])))


@pytest.mark.parametrize("shards", [1, 4, 7])
@pytest.mark.parametrize("pipeline", COMPILED)
def test_every_task_of_the_compiled_pipeline_is_that_of_the_list(tmp_path: Path, pipeline: str, shards: int) -> None:
    given = {name: value for name, value in GIVEN.items() if name in PIPELINES[pipeline]}
    others = {
        "tokenizer_uri": "s3://b/asset",
        "max_rows": "9",
        "workers": "3",
        "render_cpu": "5",
        "write_memory": "3Gi",
    }
    for more in ({}, others):
        defaults = {name: value for name, value in PIPELINES[pipeline].items() if value is not None}
        stages = stages_of(pipeline, {**defaults, **given, **more}, shards=shards, work=WORK)
        listed = {
            f"{stage.name} {index:02d}" if stage.each else stage.name: {
                "argv": stage.command(index),
                "image": stage.image,
                "cpu": stage.cpu,
                "memory": stage.memory,
                "scratch": stage.scratch,
                "hours": stage.hours,
                "after": set(stage.after),
            }
            for stage in stages
            for index in range(stage.count)
        }
        assert compiled(pipeline, shards, tmp_path, {**given, **more}) == listed


@pytest.mark.parametrize("pipeline", COMPILED)
def test_parameters_and_their_defaults_are_those_of_the_compiled_pipeline(tmp_path: Path, pipeline: str) -> None:
    compiler.Compiler().compile(COMPILED[pipeline](Placement()), str(tmp_path / "pipeline.yaml"))
    spec, _ = yaml.load_all((tmp_path / "pipeline.yaml").read_text(), yaml.CSafeLoader)
    declared = spec["root"]["inputDefinitions"]["parameters"]
    assert {name: default(about) for name, about in declared.items()} == PIPELINES[pipeline]
