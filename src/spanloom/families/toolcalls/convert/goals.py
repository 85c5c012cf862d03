"""The goals of AgentDojo's injection tasks: what each attack asks the model to do.

In: a JSON file, `{"banking": {"injection_task_3": "Send …"}}` (a goal, or a list of goals, for each task), or an
installed `agentdojo`. Out: (suite, task) → goals. Goals help to find an injection if the record does not contain its
text and its marks are unknown. They are not part of this package; without them injections are found by marks alone.
"""

import importlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from spanloom.errors import SourceError
from spanloom.options.endless import never_ends

Goals = Mapping[tuple[str, str], Sequence[str]]

BENCHMARKS = ("v1", "v1.1", "v1.1.1", "v1.1.2", "v1.2", "v1.2.1", "v1.2.2")
"""Versions of AgentDojo's benchmark up to the package's 0.1.35. The goals of a task may differ between them."""


def read_goals(file: Path) -> Goals:
    """Reads the goals from a JSON file. Raises SourceError for an unreadable or invalid file."""
    if never_ends(file):
        raise SourceError("the goals are not a file", where=str(file), remedy="fix --goals")
    try:
        value = json.loads(file.read_bytes().decode("utf-8-sig"))
    except OSError as fault:
        raise SourceError(
            f"the goals cannot be read: {fault.strerror}", where=str(file), remedy="fix --goals"
        ) from None
    except (ValueError, RecursionError) as fault:
        raise SourceError(f"the goals are not JSON: {fault}", where=str(file), remedy="fix --goals") from None
    goals: dict[tuple[str, str], list[str]] = {}
    for suite, tasks in value.items() if isinstance(value, dict) else [("", None)]:
        for task, goal in tasks.items() if isinstance(tasks, dict) else [("", None)]:
            texts: list[Any] = goal if isinstance(goal, list) else [goal]
            if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
                raise SourceError(
                    "the goals have the wrong structure",
                    where=str(file),
                    remedy='give {"suite": {"injection_task_0": "goal", …}, …}',
                )
            goals[suite, task] = texts
    return goals


@cache
def installed_goals() -> tuple[Goals, str]:
    """The goals of the installed `agentdojo`, and its version; both empty if the package is not installed.

    The import takes about ten seconds. Raises SourceError if the installed package cannot be read.
    """
    try:
        version = importlib.metadata.version("agentdojo")  # ignores a data folder of that name
    except importlib.metadata.PackageNotFoundError:
        return {}, ""
    goals: dict[tuple[str, str], list[str]] = {}
    try:
        suites_of = importlib.import_module("agentdojo.task_suite.load_suites").get_suites
        for benchmark in BENCHMARKS:
            for suite, tasks in suites_of(benchmark).items():
                for task, injection in tasks.injection_tasks.items():
                    texts = goals.setdefault((suite, task), [])
                    if injection.GOAL not in texts:
                        texts.append(injection.GOAL)
        return goals, version
    except (ImportError, AttributeError, KeyError) as fault:
        raise SourceError(
            f"the goals of the installed agentdojo cannot be read: {fault}", remedy="give them with --goals FILE"
        ) from None
