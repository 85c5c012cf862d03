"""The rows of a shard in pieces, one for each process."""

import pytest

from spanloom.conversations.source.folder import Part
from spanloom.dataset.validate.processes import pieces


@pytest.mark.parametrize(
    ("rows", "count", "expected"),
    [
        ([], 3, []),
        ([5], 3, [[5]]),
        ([5, 5, 5, 5], 2, [[5, 5], [5, 5]]),
        ([5, 5, 5], 2, [[5, 5], [5]]),
        ([9, 1, 1, 1], 2, [[9], [1, 1, 1]]),
        ([1, 1, 1, 9], 2, [[1, 1, 1, 9]]),
        ([1, 1, 1], 8, [[1], [1], [1]]),
    ],
)
def test_parts_are_cut_into_pieces_of_about_as_many_rows(
    rows: list[int], count: int, expected: list[list[int]]
) -> None:
    parts = [Part(index=at, row_groups=(at,), first_row=sum(rows[:at]), rows=size) for at, size in enumerate(rows)]
    cut = pieces(parts, count)
    assert [[part.rows for part in piece] for piece in cut] == expected
    assert [part for piece in cut for part in piece] == parts
