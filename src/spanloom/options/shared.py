"""Options about how a build runs and is checked, which commands, steps and the Python API share."""

from pathlib import Path
from typing import Annotated, Literal

from spanloom.options.option import option, running

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
        "Worker processes. Default: one for each usable CPU, if memory allows; `build` takes fewer for few rows.", min=1
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
