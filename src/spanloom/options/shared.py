"""Options about how a build runs and is checked, which commands, steps and the Python API share."""

import operator
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from spanloom.options.option import option, running

of_amount = partial(option, rich_help_panel="How much, and for which split")

OnStage = Callable[[str, int, int], None]
"""Called with the name of the work, the amount done and the total; while worker processes run, from another thread."""

MAX_WORKERS = 1024
"""The most worker processes of one command: above any machine, and below what the pipe of a pool can hold."""

Reader = Annotated[
    Literal["auto", "megatron", "independent"],
    option(
        "The reader of the arrays: Megatron's own, or one in numpy that shares no code with the writer and "
        "needs no Megatron. auto: Megatron's if it is installed."
    ),
]
Workers = Annotated[
    int | None,
    running(
        "Worker processes. Default: one for each usable CPU, if memory allows; `build` takes fewer for few rows.",
        min=1,
        max=MAX_WORKERS,
    ),
]
Resume = Annotated[bool, running("Resume where an interrupted run stopped, or discard what it left and start over.")]
AllowUnknownSha = Annotated[
    bool, running("Build even if the git SHA of this Spanloom is unknown.", "--allow-unknown-sha")
]
SCRATCH = running(
    "Folder for what is staged from URIs and made for them; kept when the command fails, to resume. "
    "Default: $SPANLOOM_SCRATCH, else a temporary folder.",
    takes=Path | None,
)
Scratch = Annotated[Path | None, SCRATCH]

Overwrite = Annotated[
    bool,
    running("Replace another result of this command at --out; kept until the new one is complete.", "--overwrite"),
]

OverwriteFile = Annotated[
    bool,
    running("Replace another result of this command in its file; kept until the new one is complete.", "--overwrite"),
]

MAX_REJECTS = (
    "Bad rows that each shard may set aside (under rejects/): a number, or a share such as 0.1%. 0 stops at the first."
)
MaxRejects = Annotated[
    str | None, of_amount(f"{MAX_REJECTS} Default: any number, which are only counted.", metavar="N|P%")
]
OnDuplicate = Annotated[
    Literal["error", "keep"], of_amount("If two rows have the same id: stop, or keep both and count them.")
]
MaxRows = Annotated[
    int | None,
    of_amount("Read at most this many rows of the source, its first; of tool calls, samples of each split.", min=0),
]
Longest = Annotated[
    int | None,
    of_amount(
        "The most tokens that a document may have, its end included. A row that makes a longer one is left out and "
        "counted as too_long; --max-rejects does not count it.",
        min=1,
    ),
]
Shards = Annotated[int, option("Shards of the dataset: record i goes to shard i modulo their number.", min=1)]


@dataclass(frozen=True, kw_only=True)
class RunningOptions:
    """How a build runs, alike in all families; none of it changes the files of a finished dataset."""

    workers: Workers = None
    resume: Resume = True
    overwrite: Annotated[
        bool, running("Replace a dataset at --out; it is kept until the new one is validated.", "--overwrite")
    ] = False
    keep_work: Annotated[bool, running("Leave the intermediates in .work, below the root.", "--keep-work")] = False
    disk_check: Annotated[
        bool,
        running(
            "Start even if the disk seems too small.", "--no-disk-check", takes=bool, given=False, read=operator.not_
        ),
    ] = True
    allow_unknown_sha: AllowUnknownSha = False


@dataclass(frozen=True, kw_only=True)
class ReusingOptions(RunningOptions):
    """The same for a source in shards, of which an earlier dataset may have the same."""

    reuse: Annotated[
        str | os.PathLike[str] | None,
        running(
            "An earlier dataset: shards that are made of the same are taken from it.",
            metavar="ROOT",
            takes=Path | None,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class DealtOptions(RunningOptions):
    """The same for a source that is one file, whose rows are dealt to shards."""

    shards: Shards = 1
    max_rows: MaxRows = None
    longest: Longest = None
    max_rejects: MaxRejects = None
    on_duplicate: OnDuplicate = "error"
