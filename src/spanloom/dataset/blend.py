"""Which prefixes Megatron trains on, and how often it draws from each: a blend, from the manifest.

In: a finished dataset. Out: for each split the prefixes of its shards with their tokens as weights, in the forms that
Megatron's flags take. Several prefixes without weights stop after one epoch; weights by tokens make every document
equally likely. No torch here.
"""

from dataclasses import dataclass
from pathlib import Path

from spanloom.dataset.manifest import Content
from spanloom.errors import DatasetError


@dataclass(frozen=True, kw_only=True)
class Blend:
    """A split's shards: prefixes of their tokens, and how many tokens each holds, which are the weights.

    `left_out`: prefixes of shards too short for one sample.
    """

    prefixes: tuple[str, ...]
    tokens: tuple[int, ...]
    left_out: tuple[str, ...] = ()

    def flat(self) -> list[str]:
        """`[weight, prefix, weight, prefix, …]`, as Megatron takes a blend on its command line."""
        return [
            part for weight, prefix in zip(self.tokens, self.prefixes, strict=True) for part in (str(weight), prefix)
        ]


def blend(content: Content, root: Path | str, split: str, *, sequence_length: int = 1) -> Blend:
    """The blend of a split.

    Args: content, the manifest's; root, where the trainer sees the dataset; sequence_length in tokens: a shard with
    fewer than that and one more gives no sample, and Megatron refuses a blend with an empty part, so it is left out.
    Of blocks, which are read without the one more, a single one is a sample.
    Raises DatasetError when nothing is left.
    """
    kept: dict[str, int] = {}
    left_out = []
    least = sequence_length + (content.block_size is None)
    for shard in content.shards:
        for file in shard.splits[split].files if split in shard.splits else ():
            if not file.path.endswith("_tokens.bin"):
                continue
            prefix, tokens = f"{root}/{file.path.removesuffix('.bin')}", shard.splits[split].tokens
            if tokens >= least:
                kept[prefix] = tokens
            else:
                left_out.append(prefix)
    if not kept:
        raise DatasetError(
            f"no shard of {split} holds a sample of {sequence_length:,} tokens and one more"
            if left_out
            else f"the dataset has no {split} documents",
            where=str(root),
            remedy="take a shorter --sequence-length" if left_out else "build it with another --valid-fraction",
        )
    return Blend(prefixes=tuple(kept), tokens=tuple(kept.values()), left_out=tuple(left_out))


def per_split(blends: dict[str, Blend]) -> dict[str, list[str] | None]:
    """What `--per-split-data-args-path` reads: the three splits that Megatron knows, null where there is none."""
    return {split: blends[split].flat() if split in blends else None for split in ("train", "valid", "test")}
