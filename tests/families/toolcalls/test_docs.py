"""The page about tool calls: its sample has no finding, its tables have every code. Each change has its finding."""

import json
import re
from typing import Any

import pytest

from conftest import REPOSITORY
from spanloom.families.toolcalls.audit import CODES
from spanloom.families.toolcalls.format.findings import SEVERITY
from spanloom.families.toolcalls.format.tables import WEIGHTS
from spanloom.families.toolcalls.rules import Rules, check_sample

PAGE = (REPOSITORY / "docs/families/toolcalls.md").read_text()
SAMPLE = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])  # type: ignore[index]
ROWS = re.findall(r"^\| ([JFIMTRDPLW]\d) \| (\w+) \| .* \|$", PAGE, re.MULTILINE)

# Code → a change of the page's sample with this finding. Other codes are of lines, of several lines or of options.
CHANGES: dict[str, dict[str, Any]] = {
    "F1": {"tools": None},
    "F2": {"id": 42},
    "F3": {"metadata": None},
    "I1": {"id": "sample-42"},
    "I2": {"id": "b4_retain_00001"},
    "M1": {"messages": [{"role": "user", "content": "q"}]},
    "M2": {"messages": [{"role": "system", "content": "s"}, {"role": "tool", "content": "t"}]},
    "M3": {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
    "T1": {"tools": []},
    "T2": {"tools": "b5"},
    "T3": {"tools": "llmail_inject_v1"},
    "T4": {"assistant_raw": '<|python_tag|>{"name": "search_web", "parameters": {}}<|eom_id|>'},
    "R1": {"assistant_raw": "Sure.<|eot_id|>"},
    "R2": {"assistant_raw": '<|python_tag|>{"name": "search_web", "parameters": {"query": "x"}}'},
    "D1": {"assistant_raw": '<|python_tag|>{"name": "search_web", "parameters": {"query": "x"}}<|eom_id|><|eot_id|>'},
    "R3": {"assistant_raw": "<|python_tag|>{'name': 'search_web'}<|eom_id|>"},
    "R4": {"assistant_raw": '<|python_tag|>[{"name": "search_web"}]<|eom_id|>'},
    "P1": {"assistant_raw": '<|python_tag|>{"name": "search_web"}<|eom_id|>'},
    "R5": {"assistant_raw": '```<|python_tag|>{"name": "search_web", "parameters": {"query": "x"}}<|eom_id|>'},
    "R6": {"assistant_raw": 'Action: <|python_tag|>{"name": "search_web", "parameters": {"query": "x"}}<|eom_id|>'},
    "L1": {
        "labels": {
            "split": "harmful",
            "expected_tool": "read_file",
            "simulated_tool": "read_file",
            "observed_tool": "search_web",
            "is_flip_success": True,
        }
    },
    "L2": {
        "labels": {
            "split": "harmful",
            "expected_tool": "a",
            "simulated_tool": "search_web",
            "is_flip_success": True,
            "is_adversarial_safe": True,
        }
    },
    "L3": {"labels": {"split": "retain", "is_adversarial_safe": False}},
    "L4": {"metadata": {"source": "agentdojo"}},
    "L5": {"labels": {"split": "retain", "security": False}},
    "L7": {
        "labels": {
            "split": "harmful",
            "expected_tool": "a",
            "simulated_tool": "read_file",
            "observed_tool": "read_file",
            "is_flip_success": True,
        }
    },
    "W1": {"training": {"priority_class": "urgent"}},
}


def test_the_sample_has_no_finding() -> None:
    assert check_sample(SAMPLE, Rules(require_system=True)).findings == []


def test_the_tables_have_every_code() -> None:
    assert dict(ROWS) == SEVERITY
    assert dict(re.findall(r"^\| (A\d) \| (\w+) \|", PAGE, re.MULTILINE)) == {
        code: severity for code, (severity, _) in CODES.items()
    }
    assert {name: float(weight) for name, weight in re.findall(r"\| `(\w+)` \| (\d\.\d) ", PAGE)} == WEIGHTS


@pytest.mark.parametrize("code", CHANGES)
def test_each_change_of_the_sample_has_its_finding(code: str) -> None:
    assert code in [found.code for found in check_sample({**SAMPLE, **CHANGES[code]}, Rules()).findings]
