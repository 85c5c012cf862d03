"""Limits on rows and tokens for smoke runs: a capped run is the same build over fewer rows.

In: the caps of a whole run. Out: the share of one shard, computed the same way by every runner, before rendering.
"""

from dataclasses import dataclass

from spanloom.conversations.source.caps import RowCaps, check_capped_root, even_share, share_of_rows
from spanloom.families.harmony import defaults

CANONICAL_ROOTS = (defaults.ROOT, defaults.CHAT_ROOT)
"""The roots of whole datasets. Their names are reserved: no capped run may use them, on any disk or in any bucket."""


@dataclass(frozen=True, kw_only=True)
class ShardCaps:
    """Limits of one shard: it reads the first `rows` source rows and writes at most `tokens` tokens, EODs included."""

    rows: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class Caps(RowCaps):
    """The caps of a run; None means no cap."""

    max_tokens: int | None = defaults.MAX_TOKENS

    def check_root(self, root: str, *, remedy: str = f"give another --root, such as {defaults.CAPPED_ROOT}") -> None:
        """Raises ConflictError if a capped run has the root (a path or URI) that is reserved for the whole dataset."""
        if self.any:
            check_capped_root(root, CANONICAL_ROOTS, remedy=remedy)

    def share(self, shard: int, shards: int) -> ShardCaps:
        """The share of `shard` out of `shards`: even; the first shards take the remainder.

        10 rows over 4 shards: 3 3 2 2.
        """
        return ShardCaps(
            rows=share_of_rows(self.max_rows, self.max_rows_per_shard, shard, shards),
            tokens=even_share(self.max_tokens, shard, shards),
        )
