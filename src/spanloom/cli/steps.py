"""Commands of `spanloom step` that pass their options by name to the `run` of a step."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import is_dataclass
from functools import wraps
from importlib import import_module
from typing import Any, TypeVar

import typer

from spanloom.cli.app import exit_by, finish_step, make_progress, step_app

Declared = TypeVar("Declared", bound=Callable[..., dict[str, Any] | None])


def step(
    name: str,
    module: str,
    *,
    switches: bool = False,
    own: Sequence[str] = (),
    counting: tuple[str, str] | None = None,
) -> Callable[[Declared], Declared]:
    """Registers the step of `spanloom.MODULE` under a name.

    The function declares the options. They are the arguments of `run`, but for those in `own`; `quiet` is passed on as
    `progress`, or as `on_progress` if a step has a name and a unit for `counting`. If the function returns a dict, that
    takes the place of the options of its dataclasses.

    The command exits with the step's `exit_code`, if it has one, or with the code of the report that `run` returns.
    The step's `artifact_metadata` makes Kubeflow's metadata from the JSON result.
    """

    def join(declared: Declared) -> Declared:
        @wraps(declared)
        def command(**options: Any) -> None:
            taken = import_module(f"spanloom.{module}")
            made = declared(**options)
            groups = {name: options.pop(name) for name in [*options] if is_dataclass(options[name])}
            if made is None:
                made = {name: value for group in groups.values() for name, value in vars(group).items()}
            arguments = {name: value for name, value in {**options, **made}.items() if name not in own}
            with ExitStack() as stack:
                if "quiet" in arguments:
                    progress = make_progress(arguments.pop("quiet"), False)
                    if counting is None:
                        arguments["progress"] = progress
                    else:
                        arguments["on_progress"] = stack.enter_context(progress.counting(*counting))
                result = taken.run(**arguments)
            report = None if isinstance(result, dict) else result
            with exit_by(report) if report else nullcontext():
                finish_step(report.as_dict() if report else result, taken.artifact_metadata)
            if hasattr(taken, "exit_code") and (code := taken.exit_code(result)):
                raise typer.Exit(code)

        step_app.command(name, switches=switches)(command)
        return declared

    return join
