"""What a sample, or a line that is no sample, can be found wrong by: codes, their severity and order.

In: a code, and where in the sample. Out: `Finding`. A finding is of one sample; its file and line are added where the
file is read.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from spanloom.errors import RecordError

Severity = Literal["ERROR", "WARNING"]

SEVERITY: dict[str, Severity] = {
    "J1": "ERROR",  # not UTF-8, not JSON, or half of a surrogate pair
    "J2": "ERROR",  # not an object
    "F1": "ERROR",  # a field is missing
    "F2": "ERROR",  # a field has a wrong type or value
    "F3": "WARNING",  # metadata or its source is missing
    "I1": "WARNING",  # the id has another form than SOURCE_SPLIT_SEQ
    "I2": "ERROR",  # the split in the id is not that of the labels
    "I3": "ERROR",  # the id was seen before
    "I4": "WARNING",  # the content was seen before, under another id
    "M1": "ERROR",  # fewer than two messages
    "M2": "ERROR",  # no user message
    "M3": "WARNING",  # no system message
    "T1": "WARNING",  # the list of tools is empty
    "T2": "WARNING",  # the registry is unknown
    "T3": "WARNING",  # the registry or list does not have the tool
    "T4": "WARNING",  # a parameter is missing, of a wrong type, or not one of those allowed
    "R1": "ERROR",  # no <|python_tag|>
    "R2": "WARNING",  # no end token
    "D1": "WARNING",  # two end tokens
    "R3": "ERROR",  # a call is not JSON
    "R4": "ERROR",  # a call has no name
    "P1": "WARNING",  # a call has no parameters
    "R5": "ERROR",  # a Markdown fence
    "R6": "ERROR",  # a prefix of another format
    "L1": "ERROR",  # a flip that called another tool than the simulated one
    "L2": "WARNING",  # a label that does not belong to this split
    "L3": "WARNING",  # is_adversarial_safe is false on retain
    "L4": "WARNING",  # an AgentDojo sample without security
    "L5": "ERROR",  # security contradicts the split
    "L6": "ERROR",  # the split is not the one that was requested
    "L7": "WARNING",  # observed_tool is not the last call's name
    "W1": "WARNING",  # an unknown priority class
}
"""Code → severity, in the order in which the findings of one sample are."""

RULES = ("R1", "R2", "R3", "R4", "R5", "R6")
"""The rules of the format: each has a line of its own in the report."""

_ORDER = {code: number for number, code in enumerate(SEVERITY)}


class ToolCallError(RecordError):
    """Samples, records or options that tool-call data cannot be made from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing wrong with one sample.

    path  where in the sample, `messages[1].role`; empty for the sample as a whole
    more  call (from 0), detail, inferred, first: those that fit the code
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
    """Findings of one sample. `most`: so many are kept, None for all; `beyond`: code and severity of others → how many.

    A sample of megabytes may have a finding for every few bytes.
    """

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self.most = most
        self.beyond: Counter[tuple[str, Severity]] = Counter()

    def append(self, finding: Finding) -> None:
        """Keeps a finding, or counts it."""
        if self.most is None or len(self) < self.most:
            super().append(finding)
        else:
            self.beyond[finding.code, finding.severity] += 1


def by_code(finding: Finding) -> int:
    """The key that findings of one sample are sorted by."""
    return _ORDER[finding.code]
