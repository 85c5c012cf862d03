"""The rules against a slow reference: the given cases, and samples that were changed in several places at once."""

import copy
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.families.toolcalls.format.tools import load_registries
from spanloom.families.toolcalls.rules import Rules, check_sample
from support.cases import lines
from support.nightly import drawn
from support.toolcall_reference import findings
from support.toolcall_samples import harmful, retain

RULES = Rules()
REGISTRIES = load_registries()
OPAQUE = [name for name, tools in REGISTRIES.known.items() if tools is None]
DOJO = harmful(
    labels={"split": "harmful", "security": False, "simulated_tool": "send_money"}, metadata={"source": "AgentDojo"}
)
SAFE = retain(labels={"split": "retain", "is_adversarial_safe": True, "simulated_tool": "search_web"})
CHECKED = {"sample_weight": 1.5, "loss_mask_start": 1, "loss_mask_end": 2, "priority_class": "borderline"}
SAMPLES = [harmful(), retain(), DOJO, SAFE, harmful(training=CHECKED), retain(training=CHECKED)]
INLINE = {
    "name": "f",
    "parameters": {"properties": {"a": {"type": "integer", "enum": [1, 2]}, "b": {}}, "required": ["a", "c"]},
}
VALUES: list[Any] = [
    *(None, "", " ", "x", "harmful", "retain", True, False, 0, 1, 5, -1, 2.0, 3.5, [], {}, 10**30),
    *("search_web", "send_money", "AgentDojo_x", "xstest", "b4_standard_v1", "llmail_inject_v1", "tau2_native"),
    *("b4_retain_00001", "b4_harmful_abcdef01", "B4_x", [{"type": "function", "function": INLINE}], [INLINE]),
]
PIECES = [
    *("<|python_tag|>", "<|eom_id|>", "<|eot_id|>", "```", " ", "\n", "Action:", "Tool:", "ToolCall:", "Function:"),
    *('{"name": ""}', "[]", "NaN", '"\\ud800"', '{"a": "\x01"}', "text", ";", "\u00a0", "1 2"),
    '{"name": "search_web", "parameters": {"query": "a"}}',
    '{"name": "send_money", "arguments": {"recipient": "```", "amount": "1", "subject": 2}}',
    '{"name": "execute_code", "parameters": {"code": "<|eom_id|>", "language": "ruby"}}',
    '{"name": "f", "parameters": {"a": 1, "c": 1}}',
    '{"name": "f", "parameters": {"a": true, "b": 1}}',
    '{"name": "read_file", "parameters": {"path": "a\\n```"}}',
]
LABELS = ("expected_tool", "simulated_tool", "observed_tool", "is_flip_success", "is_adversarial_safe", "security")
METADATA = ("source", "has_tool_calls", "injection_goal_tool")


def as_set(found: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for one in found)


def check(sample: dict[str, Any]) -> None:
    ours = [found.as_dict() for found in check_sample(sample, RULES).findings]
    assert as_set(ours) == as_set(findings(sample, REGISTRIES.files, OPAQUE)), sample


def mutated(value: Any, random: Random) -> Any:
    """The value with one thing in it changed: a key or item taken away, replaced or added, a piece put into a text."""
    if isinstance(value, dict) and value and random.random() < 0.7:
        key = random.choice(list(value))
        rest = {name: inner for name, inner in value.items() if name != key}
        kind = random.random()
        return rest if kind < 0.15 else {**rest, key: mutated(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        at, kind = random.randrange(len(value)), random.random()
        if kind < 0.2:
            return [*value[:at], *value[at + 1 :]]
        return [*value, random.choice(VALUES)] if kind < 0.4 else [*value[:at], mutated(value[at], random)]
    if isinstance(value, str) and random.random() < 0.6:
        at = random.randrange(len(value) + 1)
        return value[:at] + random.choice(PIECES) + value[at:]
    return copy.deepcopy(random.choice(VALUES))


def changed_sample(random: Random) -> dict[str, Any]:
    sample = copy.deepcopy(random.choice(SAMPLES))
    for _ in range(random.randint(1, 4)):
        kind = random.random()
        if kind < 0.35:
            sample["assistant_raw"] = "".join(random.choices(PIECES, k=random.randint(1, 7)))
        elif kind < 0.55:
            above, keys = random.choice([("labels", LABELS), ("metadata", METADATA), ("training", tuple(CHECKED))])
            inner = sample.get(above)
            sample[above] = {**(inner if isinstance(inner, dict) else {}), random.choice(keys): random.choice(VALUES)}
        else:
            made = mutated(sample, random)
            sample = made if isinstance(made, dict) else sample
    return sample


def test_the_reference_says_of_each_case_what_is_said_of_it(fixtures: Path) -> None:
    for case in lines(fixtures / "samples.jsonl"):
        assert as_set(findings(case["sample"], REGISTRIES.files, OPAQUE)) == as_set(case["findings"]), case["case"]


@settings(max_examples=drawn(200, 30))
@given(st.integers(0, 2**32))
def test_the_rules_say_what_the_reference_says(seed: int) -> None:
    random = Random(seed)
    for _ in range(20):
        check(changed_sample(random))


@pytest.mark.parametrize("code", ["T1", "T4", "R4", "P1", "L1", "L4", "L5", "L7", "W1", "D1", "R6", "I2", "M1"])
def test_the_changes_reach_each_rule(code: str) -> None:
    random = Random(7)
    assert any(
        code in {found.code for found in check_sample(changed_sample(random), RULES).findings} for _ in range(4000)
    )
