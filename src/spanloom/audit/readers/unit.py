"""A piece of a dataset that one worker reads, and the options that say how.

In: nothing; carriers. Out: `Unit`, `Reading`.
"""

from dataclasses import dataclass, field
from pathlib import Path

TOKENS_AT_ONCE = 1 << 19
"""Tokens of a batch, about: what is held does not follow the size of a file."""

TOKENS, LABELS = "tokens", "labels"
"""What position t of a mask is about: token t, or token t + 1, its label."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a dataset is read. `mask`: the column, or the ending of the mask's files; `aligned`: tokens or labels."""

    mask: str | None = None
    aligned: str | None = None


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Rows of one file.

    kind    `parquet`, `arrow` or `indexed`
    path    the file; of `indexed` the prefix of the tokens, without suffix
    shown   the path below the dataset, as reports name it
    first   the first row
    rows    how many
    groups  row groups of a Parquet file, [begin, end)
    mask    of `indexed`: the prefix of the mask
    """

    kind: str
    path: Path
    shown: str
    first: int
    rows: int
    groups: tuple[int, int] = (0, 0)
    mask: Path | None = None
    reading: Reading = field(default_factory=Reading)
