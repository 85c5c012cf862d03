"""What a plan does, in lines for users. In: a plan's `content`. Out: text."""

from collections.abc import Iterator

from spanloom.dataset.plan.format import PlanContent

PADDING_LIMIT = 0.02
"""Largest share of padding in the positions of a split without a warning."""


def plan_lines(content: PlanContent) -> Iterator[str]:
    """A few lines for each split: samples, padding, long documents, labels without their question."""
    length = content.options.sequence_length
    for split, counts in content.splits.items():
        positions = counts.samples * length
        yield (
            f"{split}: {counts.documents:,} documents in {counts.samples:,} samples of {length:,}, "
            f"padding {_share(counts.padding, positions)}"
        )
        if counts.long_documents:
            became = {
                "window": f"{counts.windows:,} windows, {counts.repeated:,} positions of questions read again",
                "truncate": f"cut off, {counts.lost_labels:,} trained labels lost",
                "drop": f"left out, {counts.lost_labels:,} trained labels lost",
            }[content.options.long]
            yield f"  longer than a sample: {counts.long_documents:,} of the documents: {became}"
        sliced = counts.slicing
        looked = f" (of {sliced.sequences:,} sequences)" if sliced.sequences < sliced.of_sequences else ""
        share = _share(sliced.without_question, sliced.labels)
        yield f"  trained labels without their question: 0.00%, without a plan {share}{looked}"
        if counts.shortened_questions:
            yield f"  trained labels whose question is shortened: {counts.shortened_questions:,}"


def plan_warnings(content: PlanContent) -> Iterator[str]:
    """A line for each split whose padding is above `PADDING_LIMIT` and avoidable: the reason and a remedy."""
    options = content.options
    for split, counts in content.splits.items():
        capacity = counts.samples * options.sequence_length
        least = -(-counts.positions // options.sequence_length)
        if counts.padding <= PADDING_LIMIT * capacity or counts.samples <= least:
            continue
        shards = [shard for shard in counts.shards if shard.samples]
        if options.strategy == "sequential":
            why, remedy = "documents stay in their order", "--strategy best-fit packs them closer"
        elif len(shards) > 1:
            documents = sum(shard.documents for shard in shards) // len(shards)
            why = f"each of {len(shards):,} shards is packed separately, with {documents:,} documents on average"
            remedy = "build the dataset in fewer shards"
        else:
            why, remedy = "its documents do not fill samples of this length", "take another --sequence-length"
        yield f"{split}: {_share(counts.padding, capacity)} of the positions are padding: {why}; {remedy}"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "–"
