"""Steps that are handed their options by name: each option is a parameter of the step's `run`, but for its own."""

import inspect
from importlib import import_module

import pytest

from support.commands import all_commands

RULES = {"eod", "valid_fraction"}
CUT = {"history", "train", "turns", "call_format", "mask_generation_prompt"}
CAPS = {"max_rows", "max_rows_per_shard", "max_tokens"}
SELECTION = {"name", "version", "filters", "limit", "strategy", "seed"}
OF_MODEL = {
    "thinking",
    "inline_think",
    "boundary",
    "stop",
    "date",
    "variables",
    "train",
    "emission",
    "control_texts",
} | {*("valid_fraction", "max_rows", "max_rows_per_shard", "quiet")}
GATES = {"min_ratio", "min_adversarial_safe"}
# Step → family, options that `run` has not, what is made of them for it.
STEPS: dict[str, tuple[str, set[str], set[str]]] = {
    "verify-tokenizer": ("harmony", set(), set()),
    "render-shard": ("harmony", CUT | CAPS | {"quiet"}, {"rules", "caps", "progress"}),
    "assemble-split": ("harmony", set(), set()),
    "write-indexed": ("harmony", set(), set()),
    "assemble-manifest": ("harmony", set(), set()),
    "prepare-chess": ("chess", set(), set()),
    "assemble-chess": ("chess", set(), set()),
    "validate-chess": ("chess", set(), set()),
    "convert-toolcalls": ("toolcalls", {"system", "turns"}, {"options"}),
    "validate-toolcalls": ("toolcalls", set(), set()),
    "merge-toolcalls": ("toolcalls", {"ratio", "seed", "eval_fraction"} | GATES, {"options"}),
    "audit-toolcalls": ("toolcalls", set(), set()),
    "tokenize-toolcalls": ("toolcalls", RULES | {"max_length", "spans", "control_texts"}, {"rules"}),
    "tokenize-conversations": ("models", OF_MODEL, {"rules", "caps", "progress"}),
    "ingest-traces": ("traces", set(), set()),
    "build-traces": ("traces", SELECTION, {"request"}),
    "export-traces": ("traces", {"control_tokens", "protect_metadata"}, {"options"}),
    "validate-traces": ("traces", {"trace", "tunix_sft", "training_example"}, {"exports"}),
    "tokenize-traces": ("traces", RULES | {"manifest", "form", "control_tokens"}, {"dataset", "rules"}),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_options_of_a_step_are_the_parameters_of_its_run(name: str) -> None:
    family, own, made = STEPS[name]
    taken = import_module(f"spanloom.families.{family}.steps.{name.replace('-', '_')}")
    parameters = inspect.signature(taken.run).parameters
    known = set(parameters)
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):  # handed on to the function of its name
        known |= set(inspect.signature(getattr(taken, name.replace("-", "_"))).parameters)
    options = {param.name for param in all_commands()[f"step {name}"].params}
    handed = (options - own) | made
    assert own <= options
    assert handed <= known
    required = {
        key for key, each in parameters.items() if each.default is each.empty and each.kind is each.KEYWORD_ONLY
    }
    assert required <= handed
