"""The page about tool calls: its sample has no finding, and each change in its table has the one that it says."""

import json
import re

import pytest

from conftest import REPOSITORY
from spanloom.families.toolcalls.audit import CODES
from spanloom.families.toolcalls.format.findings import SEVERITY
from spanloom.families.toolcalls.format.tables import WEIGHTS
from spanloom.families.toolcalls.rules import Rules, check_sample

PAGE = (REPOSITORY / "docs/families/toolcalls.md").read_text()
SAMPLE = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])  # type: ignore[index]
ROWS = re.findall(r"^\| ([JFIMTRDPLW]\d) \| (\w+) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)


def test_the_sample_has_no_finding() -> None:
    assert check_sample(SAMPLE, Rules(require_system=True)).findings == []


def test_the_tables_have_every_code() -> None:
    assert {code: severity for code, severity, *_ in ROWS} == SEVERITY
    assert dict(re.findall(r"^\| (A\d) \| (\w+) \|", PAGE, re.MULTILINE)) == {
        code: severity for code, (severity, _) in CODES.items()
    }
    assert {name: float(weight) for name, weight in re.findall(r"\| `(\w+)` \| (\d\.\d) ", PAGE)} == WEIGHTS


@pytest.mark.parametrize(("code", "example"), [(row[0], row[3]) for row in ROWS if '"' in row[3].strip("`")[:1]])
def test_each_example_has_its_finding(code: str, example: str) -> None:
    changed = {**SAMPLE, **json.loads("{" + example.strip("`").replace("\\|", "|") + "}")}
    assert code in [found.code for found in check_sample(changed, Rules()).findings]
