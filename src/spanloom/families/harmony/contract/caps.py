"""Limits on rows and tokens for smoke runs: a capped run is the same build over fewer rows.

In: the caps of a whole run. Out: the share of one shard, worked out the same way by every runner, before rendering.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from spanloom.errors import ConflictError, SpanloomError
from spanloom.families.harmony import defaults
from spanloom.storage.uri import is_uri, parse_uri

CANONICAL_ROOTS = (defaults.ROOT, defaults.CHAT_ROOT)
CANONICAL_NAMES = tuple(Path(root).name for root in CANONICAL_ROOTS)
"""`synth_kd_v1`, `harmony_chat_v1`: what the root of a whole dataset is called, on any disk and in any bucket."""


@dataclass(frozen=True, kw_only=True)
class ShardCaps:
    """What one shard may read and write: `rows` source rows from its start, `tokens` tokens with each EOD counted."""

    rows: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class Caps:
    """The caps of a run; None is no cap."""

    max_rows: int | None = defaults.MAX_ROWS
    max_rows_per_shard: int | None = defaults.MAX_ROWS_PER_SHARD
    max_tokens: int | None = defaults.MAX_TOKENS

    def __post_init__(self) -> None:
        for name, cap in self.as_dict().items():
            if cap is not None and cap < 0:
                raise SpanloomError(f"{name} must be at least 0, not {cap}", remedy="leave the cap away for none")

    @property
    def any(self) -> bool:
        return (self.max_rows, self.max_rows_per_shard, self.max_tokens) != (None, None, None)

    def as_dict(self) -> dict[str, int | None]:
        return asdict(self)

    def check_root(self, root: str, *, remedy: str = f"give another --root, such as {defaults.CAPPED_ROOT}") -> None:
        """Raises ConflictError for a capped run whose root, a path or a URI, is called as the whole dataset's is.

        A path counts as it is written and as its links lead, and so does the default root wherever it leads.
        """
        if not self.any:
            return
        if is_uri(root):
            canonical = parse_uri(root).name in CANONICAL_NAMES
        else:
            followed = Path(root).resolve()
            canonical = bool({Path(root).name, followed.name} & set(CANONICAL_NAMES))
            canonical = canonical or followed in [Path(whole).resolve() for whole in CANONICAL_ROOTS]
        if canonical:
            raise ConflictError("a capped run must not write the canonical dataset", where=root, remedy=remedy)

    def share(self, shard: int, shards: int) -> ShardCaps:
        """The share of `shard` out of `shards`: even, with the remainder to the lower shards.

        10 rows over 4 shards: 3 3 2 2.
        """
        shares = [cap for cap in (_even(self.max_rows, shard, shards), self.max_rows_per_shard) if cap is not None]
        return ShardCaps(rows=min(shares, default=None), tokens=_even(self.max_tokens, shard, shards))


def rows_read(caps: Caps, rows: Sequence[int]) -> list[int]:
    """How many of the rows of each shard are read."""
    shares = [caps.share(shard, len(rows)).rows for shard in range(len(rows))]
    return [there if share is None else min(there, share) for there, share in zip(rows, shares, strict=True)]


def _even(total: int | None, shard: int, shards: int) -> int | None:
    return None if total is None else total // shards + (shard < total % shards)
