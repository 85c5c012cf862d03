"""The options that decide the bytes of blocks, besides the transcripts and the tokenizer."""

from dataclasses import dataclass
from typing import Annotated, Literal

from spanloom.families.chat import defaults
from spanloom.options.option import option
from spanloom.options.shared import MaxRows, Shards


@dataclass(frozen=True, kw_only=True)
class PackingRules:
    """All options that change the bytes, besides the transcripts and the tokenizer."""

    block_size: Annotated[int, option("Tokens of a block.", min=2)] = defaults.BLOCK_SIZE
    post_training: Annotated[
        bool,
        option(
            "Loss on the assistant's complete spans alone, with boundary injection and the stop rule.",
            "--post-training/--no-post-training",
            envvar="POST_TRAINING",
        ),
    ] = defaults.POST_TRAINING
    strict_user: Annotated[
        bool,
        option(
            "No loss on an answer whose user span is not in the block whole; or also where a block's border "
            "cut it and an injected USER opened it again.",
            "--strict-user/--no-strict-user",
        ),
    ] = defaults.STRICT_USER
    keep_lossless: Annotated[
        bool, option("Keep blocks in which no token carries loss.", "--keep-lossless/--drop-lossless")
    ] = defaults.KEEP_LOSSLESS
    pad_tail: Annotated[
        bool, option("Pad the last, shorter block of each shard instead of dropping it.", "--pad-tail")
    ] = defaults.PAD_TAIL
    shards: Shards = defaults.SHARDS
    max_rows: MaxRows = None
    records: Annotated[
        Literal["line", "eos", "file"],
        option("What a record of a .txt file is: a line, the text between two <|EOS|>, or the file."),
    ] = defaults.RECORDS
