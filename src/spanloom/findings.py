"""The result of every check: a report of the checks that ran and of their findings.

In: facts about a dataset. Out: `Report`, which is clean or says where the dataset is wrong.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from spanloom.errors import EXIT_FINDINGS, SpanloomError

FINDINGS_KEPT_PER_CHECK = 20
"""A broken shard can differ at every token; the first places are enough to find the fault."""

EARLIER = "earlier version"
"""Begins the check of a notice: the dataset has a fault that builds of its version made, and this one does not. It goes
on to validate."""

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fault and its place.

    In a token dataset: `sequence` counts from 0 in its shard and split, `offset` in its sequence. In a file of records:
    `line` counts from 1, `id` names the record, `path` the value in it (`messages[2].role`). `code`: the code of
    the broken rule, if rules have codes.
    """

    check: str
    message: str
    split: str | None = None
    shard: int | None = None
    sequence: int | None = None
    offset: int | None = None
    file: str | None = None
    line: int | None = None
    id: str | None = None
    path: str | None = None
    code: str | None = None
    severity: Severity = "error"

    def __str__(self) -> str:
        places = [f"{name} {value}" for name in _PLACES if (value := getattr(self, name)) is not None]
        code = "" if self.code is None else f" {self.code}"
        return f"{self.check}{code}: {self.message}" + (f" ({', '.join(places)})" if places else "")

    def as_dict(self) -> dict[str, Any]:
        """A JSON value. Fields that apply only to files of records are left out if they are not set."""
        values = asdict(self)
        if self.severity == "error":
            del values["severity"]
        return {name: value for name, value in values.items() if value is not None or name in _ALWAYS}


_PLACES = ("split", "shard", "sequence", "offset", "file", "line", "id", "path")
_ALWAYS = ("check", "message", "split", "shard", "sequence", "offset", "file")


@dataclass
class Report:
    """The checks that ran, how many items each examined, and the findings.

    `keep`: how many findings of each check are kept (all are counted); None keeps all. `found`: number of findings by
    check. `reader`: how the arrays of a token dataset were read, "megatron" or "independent".
    `duplicate_documents`: number of documents of a token dataset whose tokens equal those of an earlier document; None
    if not all documents were read. Duplicates are not findings.
    Warnings are kept and counted like errors; `clean` depends on errors alone.
    """

    checked: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    found: dict[str, int] = field(default_factory=dict)
    keep: int | None = FINDINGS_KEPT_PER_CHECK
    errors: int = 0
    reader: str | None = None
    duplicate_documents: int | None = None

    @property
    def clean(self) -> bool:
        return not self.errors

    @property
    def notices(self) -> list[str]:
        """What an earlier version made otherwise, with the number of documents."""
        return [
            f"{name.removeprefix(f'{EARLIER}: ')}: {count:,} documents; build it again to fix them"
            for name, count in self.found.items()
            if name.startswith(EARLIER)
        ]

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ends with this report."""
        return 0 if self.clean else EXIT_FINDINGS

    def ran(self, check: str, count: int) -> None:
        """Records that `check` looked at `count` more things, so that a check that saw nothing shows as 0."""
        self.checked[check] = self.checked.get(check, 0) + count

    def add(self, findings: Iterable[Finding]) -> None:
        """Counts every finding and keeps the first `keep` of each check."""
        for finding in findings:
            self.found[finding.check] = self.found.get(finding.check, 0) + 1
            self.errors += finding.severity == "error"
            if self.keep is None or self.found[finding.check] <= self.keep:
                self.findings.append(finding)

    def wrong(self, check: str, message: str, **where: Any) -> None:
        """Adds one finding; `where`: the other fields of a `Finding`."""
        self.add([Finding(check=check, message=message, **where)])

    def include(self, other: "Report") -> None:
        """Adds everything in another report, as if its checks had run here."""
        for check, count in other.checked.items():
            self.ran(check, count)
        # add() counts the findings that the other report kept; the rest are counted here.
        beyond = Counter(other.found)
        beyond.subtract(finding.check for finding in other.findings)
        errors = self.errors + other.errors
        self.add(other.findings)
        self.errors = errors
        for check, count in beyond.items():
            self.found[check] += count

    def as_dict(self) -> dict[str, Any]:
        return {
            "clean": self.clean,
            "checked": dict(sorted(self.checked.items())),
            "found": dict(sorted(self.found.items())),
            "findings": [finding.as_dict() for finding in self.findings],
            **({} if self.reader is None else {"reader": self.reader}),
            **({} if self.duplicate_documents is None else {"duplicate_documents": self.duplicate_documents}),
        }


class FindingsError(SpanloomError):
    """Validation found faults, so the output is not a dataset. `report` is the whole report."""

    exit_code = EXIT_FINDINGS

    def __init__(self, report: Report, where: str) -> None:
        count = sum(report.found.values())
        first = str(report.findings[0]) if report.findings else ""
        super().__init__(
            f"validation found {count:,} fault{'s' if count > 1 else ''}, the first: {first}",
            where=where,
            remedy="report.html there lists them; no manifest.json was written",
        )
        self.report = report

    def __reduce__(self) -> tuple[object, ...]:
        return (FindingsError, (self.report, self.where))
