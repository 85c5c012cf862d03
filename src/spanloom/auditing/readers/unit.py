"""A part of a dataset that one worker reads, and the options for reading.

In: nothing. Out: `Unit`, `Reading`.
"""

from dataclasses import dataclass, field
from pathlib import Path

TOKENS_AT_ONCE = 1 << 19
"""About how many tokens a batch has: memory does not grow with the file."""

TOKENS, LABELS = "tokens", "labels"
"""What position t of a mask refers to: token t, or its label, token t + 1."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The options for reading. `mask`: its column, or the suffix of its files; `aligned`: with tokens or labels."""

    mask: str | None = None
    aligned: str | None = None


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Rows of one file.

    kind    `parquet`, `arrow` or `indexed`
    path    the file; for `indexed` the prefix of the tokens
    shown   the path below the dataset, for reports
    first   the first row
    rows    the number of rows
    groups  row groups of a Parquet file, [begin, end)
    mask    for `indexed` the prefix of the mask
    """

    kind: str
    path: Path
    shown: str
    first: int
    rows: int
    groups: tuple[int, int] = (0, 0)
    mask: Path | None = None
    reading: Reading = field(default_factory=Reading)
