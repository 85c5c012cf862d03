"""The task lists of the families: `task_list.toml` in their folders, read once.

In: the name of a list. Out: its constants, as `spanloom/tasks/listed.py` describes them. `pipelines/` runs this file
where kfp is installed and Spanloom is not, so that it imports nothing of Spanloom. Of a list with one task for the
dataset, `BY_SHARD` is the list with a task for each shard:

    tokenize ×N ─► assemble-dataset ─► validate-shard ×N ─► assemble-validation
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

Parameters = dict[str, str | int | float | None]
Task = dict[str, Any]

FAMILIES = Path(__file__).parent

_PARTS = {"--work": "{work_uri}", "--rendered": ("out", "rendered")}
"""Options of a step whose parts are published at a work place."""


@cache
def task_list(name: str) -> SimpleNamespace:
    """A list by its place below families/, such as `harmony.task_list`; after a colon a list that is made of it:
    `chat.task_list:BY_SHARD`."""
    place, _, inner = name.partition(":")
    if inner:
        made: SimpleNamespace = getattr(task_list(place), inner)
        return made
    *folders, file = place.split(".")
    listed = tomllib.loads(FAMILIES.joinpath(*folders, f"{file}.toml").read_text("utf-8"))
    constants = run_path(str(FAMILIES / folders[0] / "defaults.py")) if folders else {}
    base = task_list(listed["base"]) if "base" in listed else None
    known = {} if base is None else base.PARAMETERS
    given: Parameters = dict.fromkeys(listed.get("required", ()))
    given |= {parameter: _value(value, constants) for parameter, value in listed["parameters"].items()}
    lists = {each.upper(): tuple(listed[each]) for each in ("reads", "writes")}
    said = [each for each in ("name", "about", "source", "shards") if each in listed]
    texts = {each.upper(): _value(listed[each], constants) for each in said}
    made = SimpleNamespace(**texts, **lists, PARAMETERS={**known, **given}, TASKS=_tasks(listed, base))
    if "by_shard" in listed:
        made.BY_SHARD = _by_shard(made, **listed["by_shard"])
    return made


def _value(value: Any, constants: Mapping[str, Any]) -> Any:
    """A value of a list. `=NAME` is the constant NAME of the family's defaults: of choices the first, a switch as 0 or
    1."""
    if not isinstance(value, str) or not value.startswith("="):
        return value
    constant = constants[value.removeprefix("=")]
    if isinstance(constant, tuple):
        return constant[0]
    return str(int(constant)) if isinstance(constant, bool) else constant


def _tasks(listed: Mapping[str, Any], base: SimpleNamespace | None) -> tuple[Task, ...]:
    """The list's own tasks, then those of the list that it is based on. One of its own takes the place of a task of the
    same name there, which `change` adds to otherwise."""
    own = {_name(task): _tupled(task) for task in listed.get("task", ())}
    if base is None:
        return tuple(own.values())
    changes = {step: _tupled(change) for step, change in listed.get("change", {}).items()}
    names = {_name(task) for task in base.TASKS}
    return (
        *(task for name, task in own.items() if name not in names),
        *(own.get(_name(task)) or _changed(task, changes.get(_name(task), {})) for task in base.TASKS),
    )


def _tupled(value: Any) -> Any:
    """A value of TOML with tuples for its lists."""
    if isinstance(value, dict):
        return {name: _tupled(inner) for name, inner in value.items()}
    return tuple(value) if isinstance(value, list) else value


def _changed(task: Task, change: Task) -> Task:
    return {**task, **change, "options": {**task["options"], **change.get("options", {})}}


def _name(task: Mapping[str, Any]) -> str:
    return f"{task['step']}-{task['part']}" if "part" in task else str(task["step"])


def _given(parameters: Parameters) -> dict[str, str]:
    """The options of a step that take a parameter of their own name each: `--max-rows` takes `{max_rows}`."""
    return {f"--{name.replace('_', '-')}": f"{{{name}}}" for name in parameters}


def _by_shard(listed: SimpleNamespace, *, parts: bool = True, on_duplicate: str | None = None) -> SimpleNamespace:
    """The list with a task for each shard. Each task that makes a dataset, and the one that validates it, become those
    of the shards.

    `parts`: whether the parts of a shard are published at a work place. `on_duplicate`: the default of a family whose
    one task has no parameters for bad rows; None if it has.
    """
    places: Parameters = {"work_uri": ""} if parts else {}
    rejects: Parameters = {} if on_duplicate is None else {"max_rejects": "", "workers": ""}
    own: Parameters = {name: value for name, value in listed.PARAMETERS.items() if name != "shards"}
    if on_duplicate is not None:
        own |= {**rejects, "on_duplicate": on_duplicate}
    checks = {task["inputs"]["dataset"][0]: task for task in listed.TASKS if task["step"] == "validate-alignment"}
    tasks: list[Task] = []
    for task in listed.TASKS:
        if (check := checks.get(_name(task))) is not None:
            made = _made_by_shard(task, {**_given(rejects), **(_PARTS if parts else {})})
            options = check["options"]
            tasks += [made, *_joined_and_validated(made, source=options["--source"], deep=options["--deep"])]
        elif task not in checks.values():
            tasks.append(task)
    return SimpleNamespace(
        **{name: value for name, value in vars(listed).items() if name in ("NAME", "READS", "SOURCE")},
        ABOUT=f"{listed.ABOUT}, by a task for each shard",
        SHARDS=4,
        WRITES=(*listed.WRITES, *places),
        PARAMETERS={**own, **places, "assemble_memory": "8Gi"},
        TASKS=tuple(tasks),
    )


def _made_by_shard(task: Mapping[str, Any], options: Mapping[str, Any]) -> Task:
    """The task of a step for each shard. `options`: those that it has besides. Ids are compared by assemble-dataset."""
    kept = {option: value for option, value in task["options"].items() if option not in ("--on-duplicate", "--shards")}
    own = {"--shard": "{index}", "--shards": "{shards}"}
    return {
        **task,
        "each": True,
        "options": {**own, **kept, **options, "--inventory": ("out", "inventory")},
    }


def _joined_and_validated(task: Mapping[str, Any], *, source: str, deep: str) -> tuple[Task, ...]:
    """What follows the task of each shard. `source`, `deep`: for validation."""
    about = {name: task[name] for name in ("part", "when") if name in task}
    suffix = f"-{task['part']}" if "part" in task else ""
    made, root = _name(task), task["options"]["--root"]
    parts = {"--rendered": (made, "rendered")} if "--rendered" in task["options"] else {}
    return (
        {
            "step": "assemble-dataset",
            **about,
            "options": {
                **parts,
                "--inventory": (made, "inventory"),
                "--root": root,
                **({"--on-duplicate": "{on_duplicate}"} if parts else {}),
            },
            "cpu": "1",
            "memory": "{assemble_memory}",
            "hours": 4,
        },
        {
            "step": "validate-shard",
            "each": True,
            **about,
            "inputs": {"dataset": (f"assemble-dataset{suffix}", "dataset")},
            "options": {
                "--shard": "{index}",
                "--root": root,
                "--source": source,
                "--tokenizer": (made, "tokenizer"),
                "--deep": deep,
                "--report": ("out", "report"),
                "--digests": ("out", "digests"),
            },
            "cpu": "{validate_cpu}",
            "memory": "{validate_memory}",
            "hours": 24,
        },
        {
            "step": "assemble-validation",
            **about,
            "options": {
                "--shard-report": (f"validate-shard{suffix}", "report"),
                "--shard-digests": (f"validate-shard{suffix}", "digests"),
                "--root": root,
                "--source": source,
                "--report": ("out", "report"),
                "--html": ("out", "html"),
            },
            "cpu": "1",
            "memory": "{assemble_memory}",
            "hours": 4,
        },
    )
