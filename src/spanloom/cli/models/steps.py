"""`spanloom step tokenize-conversations`: the step of the pipeline for any model."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from spanloom.api.building import model_rules
from spanloom.api.options import ModelOptions, OnDuplicate, RowOptions, ValidFraction
from spanloom.cli import options
from spanloom.cli.options import ShardTask
from spanloom.cli.steps import step
from spanloom.conversations.source.caps import RowCaps
from spanloom.families.models import defaults
from spanloom.options.option import option, place


@dataclass(frozen=True, kw_only=True)
class _Task(ShardTask):
    """As the other options of rows are declared."""

    on_duplicate: OnDuplicate = "error"


@dataclass(frozen=True, kw_only=True)
class TokenizeOptions:
    """The options of tokenize-conversations, but for those of rendering and of rows."""

    source: Annotated[
        str, place("Folder of `conversations_v1`, `harmony_conversations_v1` or `synth_harmony_v1`, or its URI.")
    ]
    model: Annotated[str, place("The model's folder, or its URI; the weights are not read.")]
    root: options.Root
    asset: Annotated[str | None, place("For a copy of the model's tokenizer.json.")] = None
    shards: Annotated[int | None, option("How many shards the source must have.", min=1)] = None
    scratch: options.Scratch = None
    quiet: options.Quiet = False


@step(
    "tokenize-conversations",
    "families.models.steps.tokenize_conversations",
    switches=True,
    own=("train", "turns", "valid_fraction"),
)
def step_tokenize(
    options: TokenizeOptions,
    rendering: ModelOptions,
    rows: RowOptions,
    task: _Task,
    train: Annotated[str, option("The spans that are trained, with commas.", metavar="SPANS")] = defaults.TRAIN,
    turns: Annotated[
        Literal["all", "last"], option("Train every turn, or what follows the last question that is answered.")
    ] = "all",
    valid_fraction: ValidFraction = defaults.VALID_FRACTION,
) -> dict[str, Any]:
    """Any model: conversations → proven tokens, loss mask, spans; no dataset before validate-alignment has passed.

    Every file is created, never overwritten. A root at a URI is claimed for this dataset first (claim.json).
    """
    return {
        **vars(options),
        "task": task.as_task(max_rejects=rows.max_rejects),
        "rules": model_rules(rendering, train, turns, valid_fraction),
        "caps": RowCaps(max_rows=rows.max_rows, max_rows_per_shard=rows.max_rows_per_shard, longest=rows.longest),
    }
