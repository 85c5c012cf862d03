"""Step commands that hand their options over as they are: each option is a parameter of the step's `run`."""

import inspect
from importlib import import_module

import pytest

from support.commands import all_commands

HANDED_OVER = {
    "verify-tokenizer": "harmony",
    "assemble-split": "harmony",
    "write-indexed": "harmony",
    "assemble-manifest": "harmony",
    "prepare-chess": "chess",
    "assemble-chess": "chess",
    "validate-toolcalls": "toolcalls",
    "audit-toolcalls": "toolcalls",
}


@pytest.mark.parametrize("name", HANDED_OVER)
def test_the_options_of_a_step_are_the_parameters_of_its_run(name: str) -> None:
    taken = import_module(f"spanloom.families.{HANDED_OVER[name]}.steps.{name.replace('-', '_')}")
    parameters = inspect.signature(taken.run).parameters
    known = set(parameters)
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):  # handed on to the function of its name
        known |= set(inspect.signature(getattr(taken, name.replace("-", "_"))).parameters)
    params = all_commands()[f"step {name}"].params
    assert {param.name for param in params} <= known
    required = {
        key for key, each in parameters.items() if each.default is each.empty and each.kind is each.KEYWORD_ONLY
    }
    assert required <= {param.name for param in params}
