"""Errors under other names of their places keep their type and what else they carry."""

from spanloom.building.preflight.checks import PreflightError
from spanloom.errors import SpanloomError, StorageError
from spanloom.findings import Finding, FindingsError, Report


def test_a_renamed_error_is_of_its_type() -> None:
    def named(text: str) -> str:
        return text.replace("/scratch/0", "gs://bucket/data")

    plain = StorageError("no /scratch/0", where="/scratch/0/x", remedy="look at /scratch/0").renamed(named)
    assert type(plain) is StorageError
    assert str(plain) == "no gs://bucket/data\n  where: gs://bucket/data/x\n  remedy: look at gs://bucket/data"
    report = Report()
    report.add([Finding(check="files", message="a file is missing")])
    found = FindingsError(report, "/scratch/0").renamed(named)
    assert isinstance(found, FindingsError)
    assert found.report is report
    assert found.where == "gs://bucket/data"
    several = PreflightError([SpanloomError("gone", where="/scratch/0/a"), SpanloomError("wrong")]).renamed(named)
    assert isinstance(several, PreflightError)
    assert several.faults[0].where == "gs://bucket/data/a"
    assert "2 faults" in str(several)
    assert "gs://bucket/data/a" in str(several)
