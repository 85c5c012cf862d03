"""The codes of findings in samples and invalid lines, with their severity and order.

In: a code and a path in the sample. Out: `Finding`. A finding belongs to one sample; the code that reads the file adds
file and line.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from spanloom.errors import RecordError

Severity = Literal["ERROR", "WARNING"]

SEVERITY: dict[str, Severity] = {
    "J1": "ERROR",  # not UTF-8, not JSON, or a lone surrogate
    "J2": "ERROR",  # not an object
    "F1": "ERROR",  # a field is missing
    "F2": "ERROR",  # a field has a wrong type or value
    "F3": "WARNING",  # metadata or its source is missing
    "I1": "WARNING",  # the id does not have the form SOURCE_SPLIT_SEQ
    "I2": "ERROR",  # the split in the id differs from labels.split
    "I3": "ERROR",  # duplicate id
    "I4": "WARNING",  # duplicate content under another id
    "M1": "ERROR",  # fewer than two messages
    "M2": "ERROR",  # no user message
    "M3": "WARNING",  # no system message
    "T1": "WARNING",  # the list of tools is empty
    "T2": "WARNING",  # the registry is unknown
    "T3": "WARNING",  # the tool is missing in the registry or list
    "T4": "WARNING",  # a parameter is missing, has a wrong type, or is not one of the allowed values
    "R1": "ERROR",  # no <|python_tag|>
    "R2": "WARNING",  # no end token
    "D1": "WARNING",  # two end tokens
    "R3": "ERROR",  # a call is not JSON
    "R4": "ERROR",  # a call has no name
    "P1": "WARNING",  # a call has no parameters
    "R5": "ERROR",  # a Markdown fence
    "R6": "ERROR",  # a prefix of another format
    "L1": "ERROR",  # a successful flip whose observed tool is not the simulated one
    "L2": "WARNING",  # a label that does not belong to this split
    "L3": "WARNING",  # is_adversarial_safe is false on retain
    "L4": "WARNING",  # an AgentDojo sample without security
    "L5": "ERROR",  # security contradicts the split
    "L6": "ERROR",  # the split differs from the requested one
    "L7": "WARNING",  # observed_tool is not the last call's name
    "W1": "WARNING",  # an unknown priority class
}
"""Code → severity. The findings of one sample are sorted in this order."""

RULES = ("R1", "R2", "R3", "R4", "R5", "R6")
"""The rules of the text format. Each has its own line in the report."""

_ORDER = {code: number for number, code in enumerate(SEVERITY)}


class ToolCallError(RecordError):
    """Invalid samples, records or options of tool-call data."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One fault of one sample.

    path  the place in the sample, such as `messages[1].role`; empty for the sample as a whole
    more  further values of some codes: call (from 0), detail, inferred, first
    """

    code: str
    path: str
    severity: Severity
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"code": self.code, "severity": self.severity, "path": self.path, **self.more}


def finding(code: str, path: str, **more: Any) -> Finding:
    """A finding with the severity of its code."""
    return Finding(code=code, path=path, severity=SEVERITY[code], more=more)


class Findings(list[Finding]):
    """The findings of one sample, limited because a large sample may have one for every few bytes.

    `most`: at most this many are kept, None for all. `beyond`: (code, severity) → number of those not kept.
    """

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.most = most
        self.beyond: Counter[tuple[str, Severity]] = Counter()

    def append(self, finding: Finding) -> None:
        """Keeps a finding, or only counts it if `most` are kept already."""
        if self.most is None or len(self) < self.most:
            super().append(finding)
        else:
            self.beyond[finding.code, finding.severity] += 1


def by_code(finding: Finding) -> int:
    """The sort key for the findings of one sample."""
    return _ORDER[finding.code]
