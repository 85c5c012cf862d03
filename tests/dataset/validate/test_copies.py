"""Copies of one document among the documents of a shard: counted in bounded memory, and a warning."""

import numpy as np
import pytest

from spanloom.dataset.validate.copies import AT_LEAST, HELD, Copies


def counted(*batches: list[int]) -> Copies:
    copies = Copies()
    for batch in batches:
        copies.add(np.array(batch, dtype=np.uint64))
    return copies


def test_the_most_frequent_document_is_counted_over_all_batches() -> None:
    copies = counted([7, 7, 3], [3, 9], [7])
    assert (copies.most, copies.documents) == (3, 6)
    assert counted().most == 0


@pytest.mark.parametrize(
    ("same", "others", "warns"),
    [(20, 0, True), (20, 379, True), (20, 380, False), (19, 0, False), (21, 380, True)],
)
def test_a_warning_needs_twenty_copies_and_more_than_a_twentieth(same: int, others: int, warns: bool) -> None:
    findings = [*counted([1] * same, [*range(2, 2 + others)]).findings("train", 3)]
    assert [(each.check, each.severity, each.split, each.shard) for each in findings] == (
        [("copies", "warning", "train", 3)] if warns else []
    )
    assert AT_LEAST == 20


def test_a_frequent_document_is_not_lost_among_many() -> None:
    """More digests than are held, each with one document, and one digest with a tenth of all documents."""
    copies = Copies()
    for batch in range(20):
        copies.add(np.arange(HELD, dtype=np.uint64) + np.uint64(10 + batch * HELD))
        copies.add(np.full(HELD // 9, 5, dtype=np.uint64))
    frequent = 20 * (HELD // 9)
    assert frequent - copies.documents / HELD <= copies.most <= frequent
    (finding,) = copies.findings("train", 0)
    assert finding.severity == "warning"
