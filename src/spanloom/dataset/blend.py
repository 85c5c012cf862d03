"""A blend from the manifest: the prefixes that Megatron trains on, and how often it samples each.

In: a finished dataset. Out: for each split, the prefixes of its shards with their tokens as weights, in the forms of
Megatron's flags. With several prefixes and no weights, training stops after one epoch; weights by tokens make every
document equally likely. Does not import torch.
"""

from dataclasses import dataclass
from pathlib import Path

from spanloom.dataset.manifest import Content
from spanloom.errors import DatasetError


@dataclass(frozen=True, kw_only=True)
class Blend:
    """A split's shards: the prefixes of their token files, and their numbers of tokens, which are the weights.

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

    Args: content, the manifest's; root, the dataset's path for the trainer; sequence_length in tokens. A shard with
    fewer than `sequence_length + 1` tokens gives no sample; it is left out, because Megatron refuses a blend with an
    empty part. Blocks are read without the extra token, so a single block is a sample.
    Raises DatasetError if no shard is left.
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
    """The content of the file for `--per-split-data-args-path`: Megatron's three splits, null for a missing one."""
    return {split: blends[split].flat() if split in blends else None for split in ("train", "valid", "test")}
