"""What every check returns: a report of the checks that ran and of what they found.

In: facts about a dataset. Out: `Report`, which is clean or says where the dataset is wrong.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

FINDINGS_KEPT_PER_CHECK = 20
"""A broken shard can differ at every token; the first places say as much as all of them."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong, and where: `sequence` counts from 0 in its shard and split, `offset` in its sequence."""

    check: str
    message: str
    split: str | None = None
    shard: int | None = None
    sequence: int | None = None
    offset: int | None = None
    file: str | None = None

    def __str__(self) -> str:
        places = [
            f"{name} {value}"
            for name in ("split", "shard", "sequence", "offset", "file")
            if (value := getattr(self, name)) is not None
        ]
        return f"{self.check}: {self.message}" + (f" ({', '.join(places)})" if places else "")


@dataclass
class Report:
    """The checks that ran, how many things each looked at, and the findings."""

    checked: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    found: dict[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        return not self.found

    def ran(self, check: str, count: int) -> None:
        """Records that `check` looked at `count` more things, so that a check that saw nothing shows as 0."""
        self.checked[check] = self.checked.get(check, 0) + count

    def add(self, findings: Iterable[Finding]) -> None:
        """Counts every finding and keeps the first `FINDINGS_KEPT_PER_CHECK` of each check."""
        for finding in findings:
            self.found[finding.check] = self.found.get(finding.check, 0) + 1
            if self.found[finding.check] <= FINDINGS_KEPT_PER_CHECK:
                self.findings.append(finding)

    def include(self, other: "Report") -> None:
        """Adds all that another report says, as if its checks had run here."""
        for check, count in other.checked.items():
            self.ran(check, count)
        # Every finding it kept is counted as it is added, those beyond are counted here.
        beyond = Counter(other.found)
        beyond.subtract(finding.check for finding in other.findings)
        self.add(other.findings)
        for check, count in beyond.items():
            self.found[check] += count

    def as_dict(self) -> dict[str, Any]:
        return {
            "clean": self.clean,
            "checked": dict(sorted(self.checked.items())),
            "found": dict(sorted(self.found.items())),
            "findings": [asdict(finding) for finding in self.findings],
        }
