"""Opens one shard of a finished dataset by the prefix of its tokens, and checks its files against the manifest.

In: Megatron's prefix of the tokens, `ROOT/train/shard_00_tokens`. Out: the prefixes of its parallel arrays, or an error
that names the file. Sizes of all files and the hash of every `.idx` are compared. The `.bin` are not hashed: that
takes minutes, and `spanloom validate` does it. No torch here.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.dataset.manifest import MANIFEST_NAME, Content
from spanloom.dataset.root.opened import content_at
from spanloom.dataset.root.shard_files import check_hash, check_size, shard_files
from spanloom.errors import DatasetError

ARRAYS: dict[str, np.dtype[Any]] = {
    "tokens": np.dtype(np.int32),
    "lossmask": np.dtype(np.uint8),
    "span": np.dtype(np.uint8),
}
"""The arrays that training reads. Families whose loss has no spans have no `span`."""

O200K_EOD, O200K_RETURN = 199999, 200002
"""`<|endoftext|>` and `<|return|>` of o200k_harmony."""

_PREFIX = re.compile(r"(?P<stem>shard_(?P<shard>\d+))_tokens")


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A shard of one split, checked.

    `prefixes`: array name → path without suffix, for each array that the dataset has. `index_sha256`: hash of the
    tokens' `.idx`, which holds the lengths of all documents, and with them everything that Megatron's sample indices
    depend on. `content`: the manifest's.
    """

    split: str
    number: int
    prefixes: dict[str, Path]
    index_sha256: str
    content: Content


def open_shard(prefix: Path, *, allow_harmful: bool = False) -> Shard:
    """Opens the shard with this prefix of its tokens. Raises DatasetError, or ManifestError, naming the file.

    `allow_harmful`: also opens a dataset whose documents a model must not learn.
    """
    matched = match_prefix(prefix)
    root, split = prefix.parent.parent, prefix.parent.name
    content = read_content(root, allow_harmful=allow_harmful)
    number = int(matched["shard"])
    entries = {}
    for path, entry in shard_files(content, root, split, number):
        check_size(path, entry)
        if path.suffix == ".idx":
            check_hash(path, entry)
        entries[path.name] = entry
    return Shard(
        split=split,
        number=number,
        prefixes={name: prefix.with_name(f"{matched['stem']}_{name}") for name in content.arrays},
        index_sha256=entries[f"{prefix.name}.idx"].sha256,
        content=content,
    )


def match_prefix(prefix: Path) -> re.Match[str]:
    """Parses the prefix of a shard's tokens into `stem` and `shard`. Raises DatasetError for other paths."""
    matched = _PREFIX.fullmatch(prefix.name)
    if matched is None:
        raise DatasetError(
            "this is not the prefix of a shard's tokens",
            where=str(prefix),
            remedy="name it as ROOT/train/shard_00_tokens; `spanloom blend ROOT` prints the prefixes",
        )
    return matched


def read_content(root: Path, *, allow_harmful: bool = False) -> Content:
    """The `content` of a finished dataset that training can read. Raises DatasetError or ManifestError.

    `allow_harmful` as in `open_shard`.
    """
    if not root.is_dir():
        raise DatasetError("there is no such folder", where=str(root), remedy="give the root of a dataset, or mount it")
    content = content_at(root)
    if content.harmful and not allow_harmful:
        raise DatasetError(
            "these documents are what a model must not learn: plain cross-entropy on them would teach it",
            where=str(root),
            remedy="open it with allow_harmful=True, for a loss that moves the model away from them",
        )
    with_span = {name: str(dtype) for name, dtype in ARRAYS.items()}
    if content.arrays not in (with_span, {name: with_span[name] for name in ("tokens", "lossmask")}):
        raise DatasetError(
            f"the dataset has the arrays {content.arrays}; training reads tokens (int32) and lossmask (uint8), and "
            "span (uint8) where there is one",
            where=str(root / MANIFEST_NAME),
        )
    return content


def check_tokenizer(content: Content, tokenizer: Any, where: Path) -> None:
    """Raises DatasetError if the trainer's tokenizer is known to differ from the one that made the tokens.

    Compares `eod`, and `sha256` if the tokenizer has it.
    """
    made, eod, sha256 = content.tokenizer, getattr(tokenizer, "eod", None), getattr(tokenizer, "sha256", None)
    if sha256 is not None and sha256 != made.sha256:
        raise DatasetError(
            f"the tokens were made by {made.name} with sha256 {made.sha256}, this tokenizer has {sha256}",
            where=str(where),
            remedy="train with the tokenizer of the dataset",
        )
    if (made.eod, eod) == (O200K_EOD, O200K_RETURN):
        raise DatasetError(
            f"this is Hugging Face's tokenizer of gpt-oss, whose eos_token is <|return|> ({eod}): the end of an "
            f"answer. Documents here end in <|endoftext|> ({made.eod}), where Megatron resets positions",
            where=str(where),
            remedy="the ids are the same: leave out --tokenizer-type with spanloom.training.pretrain_gpt, or set "
            "config.tokenizer = dataset_tokenizer(content) in a script of your own",
        )
    if eod != made.eod:
        raise DatasetError(
            f"documents end in token {made.eod}, this tokenizer's end-of-document is {eod}",
            where=str(where),
            remedy=f"train with the tokenizer of the dataset ({made.name})",
        )
