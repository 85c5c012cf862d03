"""The options of `teacher score` and `teacher validate`, each declared once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from spanloom.options.option import listing, option, running


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The teacher: a causal language model in this process."""

    model: Annotated[
        Path | None, option("Folder of a causal language model with weights and tokenizer.json.", metavar="DIR")
    ] = None
    dtype: Annotated[Literal["float32", "bfloat16"], option("Of the teacher's weights.")] = "float32"
    device: Annotated[
        str | None, running("Where the teacher runs: cpu, cuda, cuda:1 … Default: cuda where there is one.")
    ] = None
    batch_tokens: Annotated[int, running("Tokens that the teacher reads at once, with padding.", min=1)] = 8_192
    padded_ids: Annotated[
        Literal["refuse", "leave-out"],
        option("Where the teacher ranks ids above the tokenizer's, as vocabularies are padded: stop, or count them."),
    ] = "refuse"


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(ModelOptions):
    """The teacher, and what is scored."""

    top_k: Annotated[int, option("How many of the most probable tokens are stored for each label.", min=1)] = 32
    spans: Annotated[
        tuple[str, ...], listing("Score the labels of these spans alone, such as final. Default: all trained labels.")
    ] = ()
