"""Commands of `spanloom step` that hand their options to the `run` of a step by name."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

import typer

from spanloom.cli.app import finish_step, step_app

Declared = TypeVar("Declared", bound=Callable[..., dict[str, Any] | None])


def step(name: str, module: str, *, own: tuple[str, ...] = ()) -> Callable[[Declared], Declared]:
    """Joins the step of `spanloom.families.MODULE` under a name.

    The function declares the options: parameters of `run` by the same names, and its `own`, which `run` has not. What
    it returns is handed to `run` too. The command ends with the step's `exit_code`, where it has one.
    """

    def join(declared: Declared) -> Declared:
        @wraps(declared)
        def command(**options: Any) -> None:
            taken = import_module(f"spanloom.families.{module}")
            made = declared(**options) or {}
            handed = {name: value for name, value in options.items() if name not in own}
            result = taken.run(**{**handed, **made})
            finish_step(result, taken.artifact_metadata)
            if hasattr(taken, "exit_code") and (code := taken.exit_code(result)):
                raise typer.Exit(code)

        step_app.command(name)(command)
        return declared

    return join
