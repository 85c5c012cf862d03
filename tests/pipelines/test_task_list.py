"""`spanloom tasks` and the compiled pipelines are one: commands, images, sizes and order of every task."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler

from components.of_task import task_list_of as task_list_here
from conftest import REPOSITORY
from pipelines.compile import PIPELINES
from pipelines.of_list import pipeline_of
from pipelines.placement import HOUR, Placement
from pipelines.shared_components import share_components
from spanloom.cli.pipelines.tasks import BY_SHARD, LISTS, list_of
from spanloom.tasks.listed import declared_parameters, listed_stages, task_name
from support.nightly import nightly

WORK = "s3://b/work"
SHARDED = ("synth_kd", "synth_raw_to_kd", "chess_games", "harmony_chat", *(f"{name}_shards" for name in BY_SHARD))
SHARDS = [
    *((pipeline, None) for pipeline in PIPELINES),
    *(
        (pipeline, 7) if pipeline in ("synth_kd", "packed_chat_shards") else nightly(pipeline, 7)
        for pipeline in SHARDED
    ),
    *(nightly(pipeline, 1) for pipeline in SHARDED),
]

Task = dict[str, Any]


def default(about: dict[str, Any]) -> str | None:
    """The default of a parameter, as a command has it; the compiled pipeline writes 64 as 64.0."""
    if "defaultValue" not in about:
        return None
    whole = about["parameterType"] == "NUMBER_INTEGER"
    return str(int(about["defaultValue"]) if whole else about["defaultValue"])


def compiled(pipeline: str, shards: int | None, folder: Path, given: dict[str, str]) -> dict[str, Task]:
    """What Kubeflow runs, by the name of each task, with the parameters `given` and the defaults of the others."""
    file = folder / "pipeline.yaml"
    compiler.Compiler().compile(pipeline_of(PIPELINES[pipeline], Placement(), shards), str(file))
    text = file.read_text()
    spec, platform = yaml.load_all(share_components(text) if shards == 7 else text, yaml.CSafeLoader)
    declared = spec["root"]["inputDefinitions"]["parameters"]
    values = {name: given.get(name, default(about)) for name, about in declared.items()}
    times = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    return dict(tasks_of(spec, spec["root"]["dag"], values, {}, set(), times))


def tasks_of(
    spec: dict[str, Any],
    dag: dict[str, Any],
    values: dict[str, Any],
    outer: dict[str, str],
    before: set[str],
    times: dict[str, Any],
):
    """The tasks of a graph and of the graphs in it. `outer`: places of its own inputs. `before`: what it waits for."""
    names = {key: task["taskInfo"]["name"] for key, task in dag["tasks"].items()}
    for task in dag["tasks"].values():
        component = spec["components"][task["componentRef"]["name"]]
        own = {
            name: values[source["componentInputParameter"]]
            if "componentInputParameter" in source
            else whole(source["runtimeValue"]["constant"])
            for name, source in task.get("inputs", {}).get("parameters", {}).items()
        }
        own = {name: substituted(value, own) for name, value in own.items()}
        artifacts = {
            name: outer[source["componentInputArtifact"]]
            if "componentInputArtifact" in source
            else place(
                names[source["taskOutputArtifact"]["producerTask"]], source["taskOutputArtifact"]["outputArtifactKey"]
            )
            for name, source in task.get("inputs", {}).get("artifacts", {}).items()
        }
        after = {names[key] for key in task.get("dependentTasks", [])} or before
        if "dag" in component:
            yield from tasks_of(spec, component["dag"], own, artifacts, after, times)
            continue
        name = task["taskInfo"]["name"]
        container = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
        yield (
            name.replace(" ", "-"),
            {
                "argv": [*container["command"], *words(container["args"], own, artifacts, name)],
                "image": container["image"],
                "cpu": resolved(container["resources"]["resourceCpuLimit"], own, values),
                "memory": resolved(container["resources"]["resourceMemoryLimit"], own, values),
                "accelerators": tuple(
                    resolved(value, own, values)
                    for _, value in sorted(container["resources"].get("accelerator", {}).items())
                ),
                "scratch": times[component["executorLabel"]]["emptyDirMounts"][0]["sizeLimit"],
                "hours": int(times[component["executorLabel"]]["activeDeadlineSeconds"]) // HOUR,
                "after": {re.sub(r" \d+$", "", each).replace(" ", "-") for each in after},
            },
        )


def substituted(value: Any, own: dict[str, Any]) -> Any:
    """A constant with parameters in it: the folder `harmful` below one."""
    if not isinstance(value, str):
        return value
    return re.sub(r"\{\{\$\.inputs\.parameters\['([\w-]+)'\]\}\}", lambda match: str(own[match[1]]), value)


def whole(constant: Any) -> Any:
    return int(constant) if isinstance(constant, float) and constant.is_integer() else constant


def place(task: str, output: str) -> str:
    """Where the task list has an output: `render-shard 03` and `ids` are WORK/render-shard/3/ids, and
    `export-traces trace` and `export` are WORK/export-traces-trace/export."""
    stage, _, number = task.rpartition(" ")
    folder = f"{stage.replace(' ', '-')}/{int(number)}" if number.isdecimal() else task.replace(" ", "-")
    return f"{WORK}/{folder}/{output}"


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


def task_list_of(pipeline: str) -> Any:
    return list_of(pipeline.removesuffix("_shards"), 4 if pipeline.endswith("_shards") else None)


def test_kubeflow_and_other_engines_read_the_same_lists() -> None:
    assert {**LISTS, **{f"{name}_shards": f"{LISTS[name]}:BY_SHARD" for name in BY_SHARD}} == PIPELINES
    assert {name: task_list_of(name).NAME for name in PIPELINES} == {
        name: name.removesuffix("_shards") for name in PIPELINES
    }


@pytest.mark.parametrize(("pipeline", "shards"), SHARDS)
def test_every_task_of_the_compiled_pipeline_is_that_of_the_list(
    tmp_path: Path, pipeline: str, shards: int | None
) -> None:
    """Once with the parameters alone that must be given, once with another value for each parameter."""
    declared = declared_parameters(task_list_of(pipeline))
    given = {name: f"s3://b/{name}" for name, value in declared.items() if value is None}
    sizes = {name: "3Gi" if "_memory" in name else "5" for name in declared if name.endswith(("_cpu", "_memory"))}
    sizes |= {"accelerators": "2"} if "accelerators" in declared else {}
    others = {name: f"other-{name}" for name in declared.keys() - given.keys() - sizes.keys() - {"accelerator"}}
    for more in ({}, {**sizes, **others}):
        defaults = {name: value for name, value in declared.items() if value is not None}
        stages = listed_stages(task_list_of(pipeline), {**defaults, **given, **more}, shards=shards, work=WORK)
        listed = {
            f"{stage.name}-{index:02d}" if stage.each else stage.name: {
                "argv": stage.command(index),
                "image": stage.image,
                "cpu": stage.cpu,
                "memory": stage.memory,
                "accelerators": (stage.accelerators, "nvidia.com/gpu") if stage.accelerators else (),
                "scratch": stage.scratch,
                "hours": stage.hours,
                "after": set(stage.after),
            }
            for stage in stages
            for index in range(stage.count)
        }
        tasks = compiled(pipeline, shards, tmp_path, {**given, **more})
        # Kubeflow leaves out the tasks of a condition that does not hold.
        assert {name: tasks[name] for name in listed} == listed
        assert more == {} or tasks.keys() == listed.keys()


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_parameters_and_their_defaults_are_those_of_the_compiled_pipeline(pipeline: str) -> None:
    spec, _ = yaml.safe_load_all((REPOSITORY / f"pipelines/{pipeline}.yaml").read_text())
    declared = spec["root"]["inputDefinitions"]["parameters"]
    assert {name: default(about) for name, about in declared.items()} == declared_parameters(task_list_of(pipeline))


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_task_is_tried_again_and_cached_only_where_the_list_says(pipeline: str) -> None:
    """What publishes, or may have been cleared, is not cached."""
    spec, _ = yaml.load_all((REPOSITORY / f"pipelines/{pipeline}.yaml").read_text(), yaml.CSafeLoader)
    cached = {task_name(task): task.get("cache", False) for task in task_list_of(pipeline).TASKS}
    graphs = [part["dag"]["tasks"] for part in (spec["root"], *spec["components"].values()) if "dag" in part]
    tasks = [task for graph in graphs for task in graph.values()]
    conditions = [task["triggerPolicy"]["condition"] for task in tasks if "triggerPolicy" in task]
    assert len(conditions) == len(graphs) - 1
    assert all(condition.endswith("tokenizer_uri'] != ''") for condition in conditions)
    for task in tasks:
        assert "iterator" not in task, "Kubeflow ignores retries inside ParallelFor"
        if "triggerPolicy" not in task:
            name = re.sub(r" \d+$", "", task["taskInfo"]["name"]).replace(" ", "-")
            assert task.get("cachingOptions", {}).get("enableCache", False) == cached[name], name
            assert task["retryPolicy"]["maxRetryCount"] >= 1
            assert float(task["retryPolicy"]["backoffFactor"]) > 1


def test_a_list_that_lacks_an_option_of_a_shared_component_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task_list = task_list_here("chat.task_list")
    *others, last = task_list.TASKS
    options = {option: value for option, value in last["options"].items() if option != "--deep"}
    monkeypatch.setattr(task_list, "TASKS", (*others, {**last, "options": options}))
    with pytest.raises(ValueError, match=r"validate-alignment: the list has .*, the component .*--deep"):
        pipeline_of("chat.task_list", Placement())
