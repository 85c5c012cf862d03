"""Documents beside the rows of their source."""

from pathlib import Path

from spanloom.dataset.validate.placed_documents import PlacedDocument, with_documents
from spanloom.findings import Report


def documents(*rows: int) -> list[PlacedDocument]:
    return [
        PlacedDocument(split="train", shard=0, sequence=sequence, row={"row": row}, open_with=Path)
        for sequence, row in enumerate(rows)
    ]


def test_each_row_has_its_document_and_documents_without_a_row_are_reported() -> None:
    report = Report()
    beside = with_documents(report, "abcd", iter(documents(1, 1, 3, 5)))
    pairs = [(row, value, None if place is None else place.sequence) for row, value, place in beside]
    assert pairs == [(0, "a", None), (1, "b", 0), (2, "c", None), (3, "d", 2)]
    assert [finding.sequence for finding in report.findings] == [1, 3]


def test_documents_in_another_order_are_reported_not_paired_with_another_row() -> None:
    report = Report()
    pairs = [place and place.sequence for _, _, place in with_documents(report, "abc", iter(documents(-1, 2, 0)))]
    assert pairs == [None, None, 1]
    assert [finding.sequence for finding in report.findings] == [0, 2]
