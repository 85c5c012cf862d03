"""Limits on rows and tokens for smoke runs: a capped run is the same build over fewer rows.

In: the caps of a whole run. Out: the share of one shard, worked out the same way by every runner, before rendering.
"""

from dataclasses import dataclass

from spanloom.conversations.source.caps import RowCaps, check_capped_root, even_share, share_of_rows
from spanloom.families.harmony import defaults

CANONICAL_ROOTS = (defaults.ROOT, defaults.CHAT_ROOT)
"""The roots of whole datasets. Their names are kept for those, on any disk and in any bucket."""


@dataclass(frozen=True, kw_only=True)
class ShardCaps:
    """What one shard may read and write: `rows` source rows from its start, `tokens` tokens with each EOD counted."""

    rows: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class Caps(RowCaps):
    """The caps of a run; None is no cap."""

    max_tokens: int | None = defaults.MAX_TOKENS

    def check_root(self, root: str, *, remedy: str = f"give another --root, such as {defaults.CAPPED_ROOT}") -> None:
        """Raises ConflictError for a capped run whose root, a path or a URI, is called as the whole dataset's is."""
        if self.any:
            check_capped_root(root, CANONICAL_ROOTS, remedy=remedy)

    def share(self, shard: int, shards: int) -> ShardCaps:
        """The share of `shard` out of `shards`: even, with the remainder to the lower shards.

        10 rows over 4 shards: 3 3 2 2.
        """
        return ShardCaps(
            rows=share_of_rows(self.max_rows, self.max_rows_per_shard, shard, shards),
            tokens=even_share(self.max_tokens, shard, shards),
        )
