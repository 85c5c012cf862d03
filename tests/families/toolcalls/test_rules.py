"""One sample, and what the rules say of it: every given case, the schema as a second opinion, and any JSON at all."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from families.toolcalls.conftest import values
from spanloom.families.toolcalls.format.findings import SEVERITY
from spanloom.families.toolcalls.format.schema import sample_schema
from spanloom.families.toolcalls.format.tables import is_tool_sample, subtype_of, weight_of
from spanloom.families.toolcalls.format.tools import load_registries
from spanloom.families.toolcalls.rules import Rules, check_sample
from support.cases import lines
from support.nightly import drawn
from support.toolcall_samples import CALL, changed, harmful, retain

RULES = Rules()
SHAPE = {"F1", "F2", "M1", "M2"}


def codes(sample: Any, rules: Rules = RULES) -> list[str]:
    return [found.code for found in check_sample(sample, rules).findings]


def as_set(findings: list[dict[str, Any]]) -> set[str]:
    return {json.dumps(found, sort_keys=True) for found in findings}


def test_every_given_case(fixtures: Path) -> None:
    cases = lines(fixtures / "samples.jsonl")
    assert cases
    for case in cases:
        checked = check_sample(case["sample"], RULES)
        assert as_set([found.as_dict() for found in checked.findings]) == as_set(case["findings"]), case["case"]
        assert (checked.tool_sample, checked.subtype, checked.weight) == (
            case["tool_sample"],
            case["subtype"],
            case["weight"],
        ), case["case"]


def test_the_schema_is_the_given_one(toolcall_cases: Path) -> None:
    assert sample_schema() == values(toolcall_cases / "schema/canonical_sample.schema.json")


def test_the_registries_are_the_given_ones(toolcall_cases: Path) -> None:
    given = {path.stem: values(path) for path in (toolcall_cases / "registries").glob("*.json")}
    opaque = given.pop("opaque")
    registries = load_registries()
    assert registries.files == given
    assert [name for name, tools in registries.known.items() if tools is None] == opaque


def test_the_schema_says_of_each_case_what_is_said_of_it(fixtures: Path) -> None:
    verdicts = {case["case"]: case for case in values(fixtures / "schema_verdicts.json")}
    validator = jsonschema.Draft202012Validator(sample_schema())
    for case in lines(fixtures / "samples.jsonl"):
        faults = list(validator.iter_errors(case["sample"]))
        wanted = verdicts[case["case"]]
        assert (not faults) == wanted["schema_valid"], case["case"]
        assert sorted({"/".join(map(str, fault.absolute_path)) for fault in faults}) == wanted["paths"]


def test_what_is_counted_by_follows_from_the_sample_alone(fixtures: Path) -> None:
    for case in lines(fixtures / "samples.jsonl"):
        sample = case["sample"]
        assert is_tool_sample(sample) == case["tool_sample"], case["case"]
        assert subtype_of(sample) == case["subtype"]
        assert weight_of(sample) == case["weight"]


PATHS = [
    *("id", "messages", "assistant_raw", "tools", "labels", "metadata", "training"),
    *("labels.split", "labels.expected_tool", "labels.simulated_tool", "labels.observed_tool"),
    *("labels.is_flip_success", "labels.is_adversarial_safe", "labels.security"),
    *("metadata.source", "metadata.has_tool_calls", "training.sample_weight", "training.priority_class"),
    *("training.loss_mask_start", "training.loss_mask_end"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
LIKELY = st.sampled_from(
    [
        *("", " ", "harmful", "retain", "AgentDojo", "agentdojo_x", "fujitsu_b4", "search_web", "b4_standard_v1", CALL),
        *([], {}, None, True, False, 0, 1, 2, -1, 3.0, 0.5, ..., "xstest"),
        *([{"name": "f"}], [{"function": {"name": ""}}], [{"function": None, "name": "f"}], [3]),
        *([{"role": "user", "content": "u"}] * 2, [{"role": "user"}, {"role": "x", "content": 1}]),
        [{"role": "user", "content": "u"}, {"role": "assistant", "content": None, "tool_calls": [{}]}],
        [{"role": "user", "content": "u"}, {"role": "assistant", "content": None, "tool_calls": []}],
        [{"role": "user", "content": "u"}, {"role": "assistant", "content": None}],
    ]
)


@settings(max_examples=drawn(400, 65))
@given(st.sampled_from([harmful(), retain()]), st.lists(st.tuples(st.sampled_from(PATHS), LIKELY | JSON), max_size=5))
def test_the_schema_accepts_exactly_the_samples_without_faults_of_shape(
    sample: dict[str, Any], changes: list[tuple[str, Any]]
) -> None:
    for path, value in changes:
        above = sample.get(path.split(".")[0])
        if "." not in path or above is None or isinstance(above, dict):
            sample = changed({**sample, path.split(".")[0]: above or {}} if "." in path else sample, path, value)
    found = [one for one in check_sample(sample, RULES).findings if one.code in SHAPE]
    training = sample.get("training") if isinstance(sample.get("training"), dict) else {}
    start, end = training.get("loss_mask_start"), training.get("loss_mask_end")
    if any(isinstance(value, float) and value.is_integer() for value in (start, end)):
        return  # 3.0 is an integer to JSON Schema
    if any(name in training and training[name] is None for name in ("loss_mask_start", "loss_mask_end")):
        return  # null counts as missing to the rules; the schema asks which of the two keys is there
    if isinstance(start, int) and isinstance(end, int) and end <= start:
        found = [one for one in found if one.path != "training.loss_mask_end"]  # it cannot compare two numbers
    validator = jsonschema.Draft202012Validator(sample_schema())
    assert validator.is_valid(sample) == (not found), (sample, found)


@given(st.dictionaries(st.sampled_from([path for path in PATHS if "." not in path]) | st.text(max_size=3), JSON))
def test_any_object_gives_findings_in_order_and_never_an_exception(sample: dict[str, Any]) -> None:
    order = list(SEVERITY)
    found = [order.index(code) for code in codes(sample)]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (CALL, []),
        (CALL + " \n", []),
        ("<|python_tag|> {}<|eom_id|>", ["R4"]),
        ('<|python_tag|>{"name": "search_web", "parameters": {"query": "<|eom_id|> x"}}<|eot_id|>', []),
        ('<|python_tag|>{"name": "search_web", "parameters": {"query": "\\ud83d\\ude80"}}<|eom_id|>', []),
        ('<|python_tag|>{"name": "search_web", "parameters": {"query": "\\ud83d"}}<|eom_id|>', ["R3"]),
        ('<|python_tag|>{"name": "search_web", "parameters": {"query": "a"}} <|eom_id|> then<|eot_id|>', []),
        ("<|python_tag|>" + "[" * 100_000 + "]" * 100_000 + "<|eom_id|>", ["R3"]),
        ("<|python_tag|>" + "9" * 10_000 + "<|eom_id|>", ["R3"]),
        ("<|python_tag|>1e400<|eom_id|>", ["R4"]),
        ("<|python_tag|>-Infinity<|eom_id|>", ["R3"]),
        ("<|python_tag|>" + "x" * 1_000_000, ["R2", "R3"]),
        (CALL + CALL, []),
        ("no call<|eot_id|> <|eom_id|>", ["R1", "D1"]),
        ('```<|python_tag|>{"name": "search_web", "parameters": {"query": "```"}}<|eom_id|>', ["R5"]),
    ],
)
def test_the_text_of_a_call(raw: str, found: list[str]) -> None:
    sample = changed(harmful(assistant_raw=raw), "labels.observed_tool", ...)
    assert [code for code in codes(sample) if code[0] in "RDP"] == found


def test_a_fence_inside_of_arguments_can_be_allowed() -> None:
    fenced = '<|python_tag|>{"name": "search_web", "parameters": {"query": "```x```"}}<|eom_id|>'
    outside = fenced + "```"
    allowing = Rules(allow_markdown_in_arguments=True)
    assert codes(harmful(assistant_raw=fenced)) == ["R5"]
    assert codes(harmful(assistant_raw=fenced), allowing) == []
    assert "R5" in codes(harmful(assistant_raw=outside), allowing)


def test_a_missing_system_message_is_an_error_where_one_is_required() -> None:
    sample = harmful(messages=[{"role": "user", "content": "u"}, {"role": "user", "content": "v"}])
    for required, severity in ((False, "WARNING"), (True, "ERROR")):
        found = check_sample(sample, Rules(require_system=required)).findings
        assert [(one.code, one.severity) for one in found] == [("M3", severity)]


def test_another_split_than_the_one_asked_for() -> None:
    assert codes(harmful(), Rules(split="retain")) == ["L6"]
    assert codes(harmful(), Rules(split="harmful")) == []


TOOL = {
    "name": "f",
    "parameters": {
        "properties": {"n": {"type": "integer"}, "x": {"type": ["number", "null"]}, "flag": {"enum": [1, "a"]}},
        "required": ["n"],
    },
}


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"n": 1}, []),
        ({"n": 10**30}, []),
        ({"n": True}, ["n"]),
        ({"n": 1.5}, ["n"]),
        ({}, ["n"]),
        ({"n": 1, "x": None}, []),
        ({"n": 1, "x": "2"}, ["x"]),
        ({"n": 1, "flag": True}, ["flag"]),
        ({"n": 1, "flag": 1, "other": []}, []),
        ({"flag": "b", "x": False}, ["flag", "n", "x"]),
    ],
)
def test_the_parameters_of_a_call(given: dict[str, Any], wrong: list[str]) -> None:
    raw = "<|python_tag|>" + json.dumps({"name": "f", "parameters": given}) + "<|eom_id|>"
    sample = changed(harmful(assistant_raw=raw, tools=[TOOL]), "labels.observed_tool", ...)
    found = check_sample(sample, RULES).findings
    assert [(one.code, one.path) for one in found] == [("T4", f"assistant_raw.parameters.{name}") for name in wrong]
