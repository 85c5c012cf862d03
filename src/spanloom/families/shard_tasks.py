"""How a family's task list with a task for each shard is made of its list with one task for the dataset.

    tokenize ×N ─► assemble-dataset ─► validate-shard ×N ─► assemble-validation

Only constants and functions of them: `pipelines/` reads this file, like the lists, where Spanloom is not installed.
"""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from .tasks import Parameters, Task, given, needs, validated_by_shard

SHARDS = 4

_PARTS = {"--work": "{work_uri}", "--rendered": ("out", "rendered")}
"""Options of a step whose parts are published at a work place."""


def by_shard(listed: Mapping[str, Any], *, parts: bool = True, on_duplicate: str | None = None) -> SimpleNamespace:
    """The list with a task for each shard, of the names of a `task_list.py`. Each task that makes a dataset, and the
    one that validates it, become those of the shards.

    `parts`: whether the parts of a shard are published at a work place. `on_duplicate`: the default of a family whose
    one task has no parameters for bad rows; None if it has.
    """
    places: Parameters = {"work_uri": ""} if parts else {}
    rejects: Parameters = {} if on_duplicate is None else {"max_rejects": "", "workers": ""}
    own: Parameters = {name: value for name, value in listed["PARAMETERS"].items() if name != "shards"}
    if on_duplicate is not None:
        own |= {**rejects, "on_duplicate": on_duplicate}
    checks = {task["inputs"]["dataset"][0]: task for task in listed["TASKS"] if task["step"] == "validate-alignment"}
    tasks: list[Task] = []
    for task in listed["TASKS"]:
        if (check := checks.get(_name(task))) is not None:
            made = made_by_shard(task, {**given(rejects), **(_PARTS if parts else {})})
            options = check["options"]
            tasks += [made, *joined_and_validated(made, source=options["--source"], deep=options["--deep"])]
        elif task not in checks.values():
            tasks.append(task)
    return SimpleNamespace(
        **{name: listed[name] for name in ("NAME", "READS", "SOURCE") if name in listed},
        ABOUT=f"{listed['ABOUT']}, by a task for each shard",
        SHARDS=4,
        WRITES=(*listed["WRITES"], *places),
        PARAMETERS={**own, **places, "assemble_memory": "8Gi"},
        TASKS=tuple(tasks),
    )


def _name(task: Mapping[str, Any]) -> str:
    return f"{task['step']}-{task['part']}" if "part" in task else str(task["step"])


def made_by_shard(task: Mapping[str, Any], options: Mapping[str, Any]) -> Task:
    """The task of a step for each shard. `options`: those that it has besides. Ids are compared by assemble-dataset."""
    kept = {option: value for option, value in task["options"].items() if option not in ("--on-duplicate", "--shards")}
    own = {"--shard": "{index}", "--shards": "{shards}"}
    return {
        **task,
        "each": True,
        "options": {**own, **kept, **options, "--inventory": ("out", "inventory")},
    }


def joined_and_validated(task: Mapping[str, Any], *, source: str, deep: str) -> tuple[Task, ...]:
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
            **needs("1", "{assemble_memory}", hours=4),
        },
        *validated_by_shard(
            f"assemble-dataset{suffix}", (made, "tokenizer"), root=root, source=source, deep=deep, **about
        ),
    )
