"""Commands of `spanloom step` that pass their options by name to the `run` of a step."""

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

import typer

from spanloom.cli.app import exit_by, finish_step, step_app
from spanloom.cli.declared import Switch

Declared = TypeVar("Declared", bound=Callable[..., dict[str, Any] | None])


def step(name: str, module: str) -> Callable[[Declared], Declared]:
    """Registers the step of `spanloom.families.MODULE` under a name.

    The function declares the options. Options that are parameters of `run` (or, if `run` has **keywords, of the
    function named after the step) are passed to `run`, a `Switch` as a bool. So is the dict that the function returns,
    made from its other options. The command exits with the step's `exit_code`, if it has one, or with the code of the
    report that `run` returns. The step's `artifact_metadata` makes Kubeflow's metadata from the JSON result.
    """

    def join(declared: Declared) -> Declared:
        hints = inspect.get_annotations(declared)
        switches = [option for option, hint in hints.items() if getattr(hint, "__origin__", None) == Switch]

        @wraps(declared)
        def command(**options: Any) -> None:
            taken = import_module(f"spanloom.families.{module}")
            options |= {name: options[name] == "1" for name in switches}
            parameters = dict(inspect.signature(taken.run).parameters)
            if inspect.getfullargspec(taken.run).varkw:
                parameters |= inspect.signature(getattr(taken, name.replace("-", "_"))).parameters
            made = declared(**options) or {}
            result = taken.run(**{**{key: value for key, value in options.items() if key in parameters}, **made})
            report = None if isinstance(result, dict) else result
            with exit_by(report) if report else nullcontext():
                finish_step(report.as_dict() if report else result, taken.artifact_metadata)
            if hasattr(taken, "exit_code") and (code := taken.exit_code(result)):
                raise typer.Exit(code)

        step_app.command(name)(command)
        return declared

    return join
