"""A step of a family's task list → its component on Kubeflow.

In: a list (`src/spanloom/families/NAME/task_list.toml`, format: `spanloom/tasks/listed.py`), which says what each
option is given. Out: a container component with an input for each parameter and artifact that an option takes, and an
output for each that it writes. What reads it is run by its path: components are loaded where kfp is installed and
Spanloom is not.

An output of each task of a stage is one input per shard: a list of artifacts can only come from a ParallelFor, whose
tasks Kubeflow does not retry.
"""

from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from runpy import run_path
from typing import Any

from kfp import dsl

SOURCES = Path(__file__).parents[1] / "src/spanloom"
SIZES = run_path(str(SOURCES / "tasks/sizes.py"))
"""The constants of `spanloom.tasks.sizes`."""
task_list_of = run_path(str(SOURCES / "families/task_lists.py"))["task_list"]
"""A list by its name below families/, such as `harmony.task_list`; one that is made of it after a colon."""

IMAGE = "ghcr.io/spanloom/spanloom-{step}:0.1.0"
DEFAULT_SHARDS = 4
"""Shards of the locked layout, the default of the steps."""

_ARTIFACTS = {"dataset": dsl.Dataset, "html": dsl.HTML, "metrics": dsl.Metrics}


def component_of(
    listed: str,
    step: str,
    *,
    outputs: Sequence[str] = ("metrics",),
    names: Mapping[str, str] | None = None,
    shards: int = DEFAULT_SHARDS,
) -> Any:
    """The component of the first task of a step. `outputs`: those that no option writes.

    An input has the name of the parameter that the list gives to its option, an artifact that of the option itself.
    `names`: option → the name of its input, where that differs.
    """
    task_list = task_list_of(listed)
    task = next(task for task in task_list.TASKS if task["step"] == step)
    several = {task_name(other) for other in task_list.TASKS if other.get("each") and not task.get("each")}
    types = {"index": int, "shards": int}
    types |= {name: str if value is None else type(value) for name, value in task_list.PARAMETERS.items()}
    declared: dict[str, Any] = {name: dsl.Input[artifact_of(name)] for name in task.get("inputs", {})}
    words: list[tuple[str, str]] = []
    for option, value in task["options"].items():
        name = (names or {}).get(option, option.removeprefix("--").replace("-", "_"))
        if isinstance(value, str):
            parameter = value[1:-1]
            if parameter in task_list.PARAMETERS and option not in (names or {}):
                name = parameter
            taken: dict[str, Any] = {name: types.get(parameter, str)}
        elif value[0] == "out":
            taken = {value[1]: dsl.Output[artifact_of(value[1])]}
        else:
            inputs = [f"{name}_{shard:02d}" for shard in range(shards)] if value[0] in several else [name]
            taken = dict.fromkeys(inputs, dsl.Input[artifact_of(name)])
        declared |= taken
        words += [(option, name) for name in taken]
    declared |= {name: dsl.Output[artifact_of(name)] for name in outputs}

    def container(*given: Any) -> dsl.ContainerSpec:
        values = dict(zip(declared, given, strict=True))
        args = [word for option, name in words for word in (option, getattr(values[name], "path", values[name]))]
        return dsl.ContainerSpec(
            image=IMAGE.format(step=step),
            command=["spanloom", "step", step],
            args=[*args, "--executor-input", "{{$}}"],
        )

    container.__name__ = step.replace("-", "_")
    container.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=kind) for name, kind in declared.items()],
        return_annotation=dsl.ContainerSpec,
    )
    return dsl.container_component(container)


def task_name(task: Mapping[str, Any]) -> str:
    return f"{task['step']}-{task['part']}" if "part" in task else str(task["step"])


def artifact_of(name: str) -> Any:
    return _ARTIFACTS.get(name, dsl.Artifact)
