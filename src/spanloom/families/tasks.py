"""What task lists of several families have in common.

Only constants and functions of them: `pipelines/` reads this file, like the lists, where Spanloom is not installed.
"""

from collections.abc import Iterable
from typing import Any

Parameters = dict[str, str | int | float | None]
Task = dict[str, Any]


def given(parameters: Iterable[str]) -> dict[str, str]:
    """The options of a step that take a parameter of their own name each: `--max-rows` takes `{max_rows}`."""
    return {f"--{name.replace('_', '-')}": f"{{{name}}}" for name in parameters}


def needs(cpu: str, memory: str, *, hours: int) -> Task:
    """The resources of a task."""
    return {"cpu": cpu, "memory": memory, "hours": hours}


def validated(made: str, root: str, source: str, *, deep: str = "{deep}", hours: int = 24, **about: Any) -> Task:
    """The task that validates and promotes what the task `made` made. `about`: further fields, such as `part`."""
    return {
        "step": "validate-alignment",
        **about,
        "inputs": {"dataset": (made, "dataset")},
        "options": {
            "--root": root,
            "--source": source,
            "--tokenizer": (made, "tokenizer"),
            "--deep": deep,
            "--report": ("out", "report"),
            "--html": ("out", "html"),
        },
        **needs("{validate_cpu}", "{validate_memory}", hours=hours),
    }


def validated_by_shard(
    assembled: str,
    tokenizer: tuple[str, str],
    *,
    root: str,
    source: str,
    deep: str = "{deep}",
    memory: str = "{assemble_memory}",
    **about: Any,
) -> tuple[Task, ...]:
    """The tasks that validate and promote what the task `assembled` made. `memory`: of the last one; `about`: further
    fields."""
    suffix = f"-{about['part']}" if "part" in about else ""
    return (
        {
            "step": "validate-shard",
            "each": True,
            **about,
            "inputs": {"dataset": (assembled, "dataset")},
            "options": {
                "--shard": "{index}",
                "--root": root,
                "--source": source,
                "--tokenizer": tokenizer,
                "--deep": deep,
                "--report": ("out", "report"),
                "--digests": ("out", "digests"),
            },
            **needs("{validate_cpu}", "{validate_memory}", hours=24),
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
            **needs("1", memory, hours=4),
        },
    )
