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
        "cpu": "2",
        "memory": "{validate_memory}",
        "hours": hours,
    }
