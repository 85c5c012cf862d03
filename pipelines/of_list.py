"""A family's task list → a Kubeflow pipeline.

In: `src/spanloom/families/NAME/task_list.toml` (format: `spanloom/tasks/listed.py`) and the components of its steps.
Out: the pipeline. What reads it is run by its path: pipelines are compiled in environments with kfp but without
Spanloom.

Tasks of a stage are named tasks, not a ParallelFor, in which Kubeflow ignores retries. No artifact is a folder: the
steps themselves move large data through URIs.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from importlib import import_module
from inspect import Parameter, Signature
from itertools import groupby
from pathlib import Path
from typing import Any

from kfp import dsl
from kfp.dsl import placeholders

from components.of_task import task_list_of, task_name
from pipelines.placement import Placement

COMPONENTS = Path(__file__).parents[1] / "components"
MOST_SHARDS = 64
"""Maximum of named tasks of a stage: each takes some 7 KB of the compiled pipeline, whose size Kubernetes limits."""

Task = Mapping[str, Any]


def pipeline_of(name: str, placement: Placement, shards: int | None = None) -> dsl.graph_component.GraphComponent:
    """The pipeline of a list. `shards`: tasks of each stage that has one per shard; None uses the list's own number.

    Raises ValueError for a number of shards outside 1 to MOST_SHARDS.
    """
    listed = task_list_of(name)
    number: int = getattr(listed, "SHARDS", 1) if shards is None else shards
    if not 1 <= number <= MOST_SHARDS:
        raise ValueError(f"a pipeline has 1 to {MOST_SHARDS} shards, not {number}")
    # Parameters without a default first, as Python and kfp require.
    declared = sorted(listed.PARAMETERS.items(), key=lambda item: item[1] is not None)

    def graph(*given: Any) -> None:
        values = dict(zip((name for name, _ in declared), given, strict=True))
        _Graph(values, number, placement).add_all(listed.TASKS)

    graph.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(
                name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=Parameter.empty if value is None else value,
                annotation=str if value is None else type(value),
            )
            for name, value in declared
        ]
    )
    return dsl.pipeline(name=listed.NAME.replace("_", "-"), description=listed.ABOUT)(graph)


class _Graph:
    """Adds the tasks of one pipeline."""

    def __init__(self, values: dict[str, Any], shards: int, placement: Placement) -> None:
        self._values, self._shards, self._placement = values, shards, placement
        self._made: dict[str, list[dsl.PipelineTask]] = {}

    def add_all(self, tasks: tuple[Task, ...]) -> None:
        for parameter, group in groupby(tasks, key=lambda task: task.get("when")):
            named = f"with-{parameter}".replace("_", "-")
            with dsl.If(self._values[parameter] != "", name=named) if parameter else nullcontext():
                for task in group:
                    self._add(task)

    def _add(self, task: Task) -> None:
        component = component_of(task, self._shards)
        name = task_name(task)
        self._made[name] = []
        for index in range(self._shards if task.get("each") else 1):
            made = component(**self._arguments(component, task, index))
            made.after(*(one for other in task.get("after", ()) for one in self._made[other]))
            self._placement.place(
                made,
                cpu=self._value(task["cpu"], index),
                memory=self._value(task["memory"], index),
                hours=task["hours"],
                cache=task.get("cache", False),
                preflight=task.get("preflight", False),
                accelerator=self._value(task.get("accelerator", ""), index),
                accelerators=self._value(task.get("accelerators", ""), index),
            )
            number = f"{index:02d}" if task.get("each") else ""
            made.set_display_name(" ".join(filter(None, (task["step"], task.get("part"), number))))
            self._made[name].append(made)

    def _arguments(self, component: Any, task: Task, index: int) -> dict[str, Any]:
        """The inputs of a component: for each option the list has its value, and the component its name."""
        arguments = {name: self._outputs(task, source, index)[0] for name, source in task.get("inputs", {}).items()}
        declared = options_of(component)
        for option, value in task["options"].items():
            if isinstance(value, tuple):
                if value[0] != "out":
                    arguments |= zip(declared[option], self._outputs(task, value, index), strict=True)
                continue
            (name,) = declared[option]
            whole = component.component_spec.inputs[name].type == "Integer"
            filled = self._value(value, index)
            arguments[name] = int(filled) if whole and isinstance(filled, str) else filled
        return arguments

    def _outputs(self, task: Task, source: tuple[str, str], index: int) -> list[Any]:
        made = self._made[source[0]]
        return [
            one.outputs[source[1]] for one in (made[index : index + 1] if task.get("each") and len(made) > 1 else made)
        ]

    def _value(self, text: str, index: int) -> Any:
        """Fills in a text. A text that is only a parameter stays that parameter, with its type."""
        if text[1:-1] in self._values and text == f"{{{text[1:-1]}}}":
            return self._values[text[1:-1]]
        return text.format(**{"index": index, "shards": self._shards, **self._values})


def component_of(task: Task, shards: int) -> Any:
    """The component of a task's step, from any folder of components/.

    A component that reads an output of each shard is made for the number of shards. Of the components of a step, the
    one with the task's options is taken. Raises ValueError if there is none.
    """
    name = task["step"].replace("-", "_")
    (file,) = COMPONENTS.glob(f"*/{name}/component.py")
    module = import_module(f"components.{file.parent.parent.name}.{name}.component")
    first = getattr(module, f"{name}_of")(shards=shards) if hasattr(module, f"{name}_of") else getattr(module, name)
    others = (other_of(shards=shards) for other_of in getattr(module, "OTHERS", ()))
    wanted = [*task["options"]]
    for component in (first, *others):
        if [*options_of(component)] == wanted:
            return component
    raise ValueError(f"{task['step']}: the list has {wanted}, the component {[*options_of(first)]}")


def options_of(component: Any) -> dict[str, list[str]]:
    """Option → names of the inputs or outputs of the option, in the order of the command."""
    args = component.component_spec.implementation.container.args
    options: dict[str, list[str]] = {}
    for option, value in zip(args[::2], args[1::2], strict=True):
        if option != "--executor-input":
            output = isinstance(value, placeholders.OutputPathPlaceholder)
            options.setdefault(option, []).append(value.output_name if output else value.input_name)
    return options
