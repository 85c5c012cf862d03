"""What the shards of a dataset add up to."""

from spanloom.dataset.manifest import ShardEntry, ShardSplit, SplitCounts, Totals
from spanloom.dataset.root.inventory import add_up


def shard(number: int, sequences: int, tokens: int, longest: int, rejected: dict[str, int]) -> ShardEntry:
    """A shard whose documents all stand in train, with a third of their tokens trained."""
    train = ShardSplit(
        sequences=sequences,
        tokens=tokens,
        span_tokens={"context": tokens - tokens // 3, "final": tokens // 3},
        longest=longest,
        fitting={"2048": sequences - 1, "4096": sequences},
        files=(),
    )
    none = ShardSplit(sequences=0, tokens=0, span_tokens={}, longest=0, fitting={}, files=())
    return ShardEntry(
        shard=number,
        rows_read=sequences + sum(rejected.values()),
        rejected=rejected,
        rejects_file=None,
        splits={"train": train, "valid": none},
        packing={"blocks": sequences},
    )


def test_counts_are_added_and_of_the_longest_documents_the_longest_is_taken() -> None:
    shards = [shard(0, 3, 60, 30, {"no_assistant": 1}), shard(1, 4, 90, 50, {}), shard(2, 1, 9, 9, {"no_messages": 2})]
    assert add_up(shards) == Totals(
        rows_read=11,
        rejected={"no_assistant": 1, "no_messages": 2},
        splits={
            "train": SplitCounts(
                sequences=8,
                tokens=159,
                span_tokens={"context": 106, "final": 53},
                longest=50,
                fitting={"2048": 5, "4096": 8},
            ),
            "valid": SplitCounts(sequences=0, tokens=0, span_tokens={}, longest=0, fitting={}),
        },
        packing={"blocks": 8},
    )
