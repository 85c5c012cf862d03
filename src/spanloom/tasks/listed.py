"""A family's task list → stages.

In: the task list of a family, values of its parameters, a place for data between steps. Out: `Stage`s.
Kubeflow's components and pipelines are made of the same lists (`components/of_task.py`, `pipelines/of_list.py`).

A list is a TOML file, which `families/task_lists.py` reads, or what that makes of one:

    name, about  the pipeline's name, with underscores, and one line about it
    required     the parameters that must have a value
    parameters   name → default of the others; `=NAME` is a constant of the family's `defaults.py`. Names of paths and
                 URIs end in `_uri` or `_root`
    reads, writes  the parameters that are places, by what the tasks do there
    source       the parameter among `reads` that is a source folder with a manifest; optional
    shards       number of tasks of a stage that has one per shard; only if there is such a stage
    by_shard     that there is also a list with a task for each shard, and how it differs; optional
    base         another list, whose parameters and tasks it has too; a task of the same name replaces the one there
    change       of a list with a base: step → what is added to its task there
    task         the tasks; a task comes after the tasks that it waits for:

        step     the command `spanloom step STEP`
        part     suffix that distinguishes tasks of the same step; optional
        each     True: a task for each shard
        options  option → value
        inputs   input of the Kubeflow component → output of a task, for inputs that no option passes; optional
        after    tasks to wait for, besides those whose outputs are read; optional
        when     a parameter: the task is left out if its value is empty; optional
        cpu, memory, hours   resources of the task
        accelerator, accelerators  a resource of nodes such as `nvidia.com/gpu`, and how many of it; optional
        preflight  True: it runs the checks of `building/preflight`; optional
        cache    True: Kubeflow may reuse an earlier result; optional

A value is a text in which `{name}` is a parameter, `{index}` the number of the task and `{shards}` the number of
shards; or `["out", NAME]`, an output of the task itself; or `[TASK, NAME]`, an output of an earlier task. If a single
task reads the output of a stage of several tasks, the option is repeated. A task is named STEP, or STEP-PART.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from spanloom.errors import SpanloomError
from spanloom.tasks.sizes import SCRATCH
from spanloom.tasks.stage import INDEX, Stage, given

MOST_SHARDS = 1024
"""Limit for tasks of a job array, the same as in the docs."""

REGISTRY = "ghcr.io/spanloom"


def declared_parameters(task_list: Any) -> dict[str, str | None]:
    """The parameters and their defaults as texts; None if a value is required."""
    return {name: None if value is None else str(value) for name, value in task_list.PARAMETERS.items()}


def listed_stages(
    task_list: Any,
    values: Mapping[str, str],
    *,
    shards: int | None,
    work: str,
    registry: str = REGISTRY,
    scratch: str = SCRATCH,
) -> list[Stage]:
    """The stages of a list. `values`: of all parameters. `shards`: None uses the list's own number.

    Below `work`, an output is at `TASK/OUTPUT`, or `TASK/INDEX/OUTPUT` if the stage has several tasks.
    Raises SpanloomError for a number of shards if no stage runs once per shard, and for an invalid number.
    """
    own = getattr(task_list, "SHARDS", None)
    if own is None and shards is not None:
        raise SpanloomError(f"{task_list.NAME} has no task for each shard", remedy="leave --shards out")
    count = shards or own or 1
    if count > MOST_SHARDS:
        raise SpanloomError(f"a pipeline has 1 to {MOST_SHARDS} shards, not {count}")
    tasks = [task for task in task_list.TASKS if "when" not in task or values[task["when"]]]
    several = {task_name(task) for task in tasks if task.get("each")}
    words = _Words(values=values, shards=count, work=work.rstrip("/"), several=several)
    return [
        Stage(
            name=task_name(task),
            count=count if task.get("each") else 1,
            image=f"{registry}/spanloom-{task['step']}:{version('spanloom')}",
            argv=("spanloom", "step", task["step"], *words.of(task)),
            cpu=words.text(task["cpu"]),
            memory=words.text(task["memory"]),
            scratch=scratch,
            hours=task["hours"],
            after=tuple(before(task)),
            accelerators=words.text(task.get("accelerators", "")),
        )
        for task in tasks
    ]


def task_name(task: Mapping[str, Any]) -> str:
    return f"{task['step']}-{task['part']}" if "part" in task else str(task["step"])


def before(task: Mapping[str, Any]) -> list[str]:
    """Names of the tasks that a task waits for."""
    read = [*task["options"].values(), *task.get("inputs", {}).values()]
    named = [value[0] for value in read if isinstance(value, tuple) and value[0] != "out"]
    return list(dict.fromkeys([*named, *task.get("after", ())]))


class _Words:
    """Options of tasks as words of a command."""

    def __init__(self, *, values: Mapping[str, str], shards: int, work: str, several: set[str]) -> None:
        self._values, self._shards, self._work, self._several = values, shards, work, several

    def of(self, task: Mapping[str, Any]) -> tuple[str, ...]:
        pairs = ((option, text) for option, value in task["options"].items() for text in self._texts(task, value))
        return given(*pairs)

    def text(self, value: str) -> str:
        return value.format(**{"index": INDEX, "shards": self._shards, **self._values})

    def _texts(self, task: Mapping[str, Any], value: str | tuple[str, str]) -> list[str]:
        if isinstance(value, str):
            return [self.text(value)]
        source, output = value
        source = task_name(task) if source == "out" else source
        if source not in self._several:
            return [f"{self._work}/{source}/{output}"]
        numbers = [INDEX] if task.get("each") else [str(number) for number in range(self._shards)]
        return [f"{self._work}/{source}/{number}/{output}" for number in numbers]
