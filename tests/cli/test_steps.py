"""A step hands `run` what `run` takes: mypy does not see it, since the options go there by their names."""

import inspect
from importlib import import_module
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from spanloom.cli import steps
from support.commands import all_commands


def step_names() -> set[str]:
    return {name.removeprefix("step ") for name in all_commands() if name.startswith("step ")}


BY_THEMSELVES = {"generate-chat", "pack-chat"}
"""Steps that call `run` with keywords, which mypy checks."""

STEPS = [
    name for name in all_commands() if name.startswith("step ") and name.removeprefix("step ") not in BY_THEMSELVES
]


class Taken(Exception):
    """Ends the step before its work."""


@pytest.mark.parametrize("name", STEPS)
def test_a_step_hands_run_what_it_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def imported(module: str) -> Any:
        step = import_module(module)

        def run(**arguments: Any) -> None:
            signature = inspect.signature(step.run)
            signature.bind(**arguments)
            if inspect.getfullargspec(step.run).varkw:  # handed on to the function of the step's name
                function = inspect.signature(getattr(step, module.rpartition(".")[2]))
                assert set(arguments) - set(signature.parameters) <= set(function.parameters)
            raise Taken

        return SimpleNamespace(run=run)

    monkeypatch.setattr(steps, "import_module", imported)
    command = all_commands()[name]
    words = [word for option in command.params if option.required for word in (option.opts[-1], value_of(option))]
    more = ["--trace", "x"] if name == "step validate-traces" else []
    with pytest.raises(Taken):
        command.main([*words, *more], standalone_mode=False)


def value_of(option: Any) -> str:
    """A value that the parser takes."""
    kind = option.type_descriptor.annotation
    choices = [choice for choice in get_args(kind) if isinstance(choice, str)]
    return choices[0] if choices else "1" if kind is int else "x"
