"""The options of `teacher score`, `carry` and `validate`, each declared once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from spanloom.options.option import listing, option, running

MaxRejects = Annotated[
    str | None,
    option(
        "Documents of each shard that may be without signals, longer than the teacher's context: a number, or a share "
        "such as 0.1%. Default: any number, which are only counted.",
        metavar="N|P%",
    ),
]


@dataclass(frozen=True, kw_only=True)
class TeacherOptions:
    """The teacher: one of a model in this process, vLLM in this process, a server."""

    model: Annotated[
        Path | None,
        option("Folder of a causal language model with weights and tokenizer.json, for transformers.", metavar="DIR"),
    ] = None
    vllm: Annotated[Path | None, option("The same, for vLLM in this process: the fastest way.", metavar="DIR")] = None
    server: Annotated[
        str | None,
        option(
            "Address of a server of vLLM, for small datasets: an answer takes 2.5 kB a label. OPENAI_API_KEY: its key.",
            metavar="URL",
        ),
    ] = None
    served_model: Annotated[str | None, option("Name of the model at the server. Default: the only one.")] = None
    tokenizer: Annotated[
        Path | None, option("tokenizer.json of the server's model, which the server does not give.", metavar="FILE")
    ] = None
    dtype: Annotated[
        Literal["float32", "bfloat16"] | None,
        option("Of the teacher's weights. Default: float32, with --vllm bfloat16.", show_default=False),
    ] = None
    padded_ids: Annotated[
        Literal["refuse", "leave-out"],
        option("Where --model ranks ids above the tokenizer's, as vocabularies are padded: stop, or count them."),
    ] = "refuse"
    quantization: Annotated[str | None, option("Of the weights, for --vllm, such as mxfp4 or fp8.")] = None
    tensor_parallel: Annotated[int, running("GPUs that share the model, for --vllm.", min=1)] = 1
    context: Annotated[int | None, running("The most tokens of a document, for --vllm.", min=3)] = None
    device: Annotated[
        str | None, running("Where --model runs: cpu, cuda, cuda:1 … Default: cuda where there is one.")
    ] = None
    batch_tokens: Annotated[int, running("Tokens that --model reads at once, with padding.", min=1)] = 8_192
    concurrency: Annotated[int, running("Requests to --server at once.", min=1)] = 8

    @property
    def given(self) -> bool:
        """Whether a teacher is named."""
        return any(each is not None for each in (self.model, self.vllm, self.server))


@dataclass(frozen=True, kw_only=True)
class ScoringOptions(TeacherOptions):
    """The teacher, and what is scored."""

    top_k: Annotated[int, option("How many of the most probable tokens are stored for each label.", min=1)] = 32
    spans: Annotated[
        tuple[str, ...], listing("Score the labels of these spans alone, such as final. Default: all trained labels.")
    ] = ()
    max_rejects: MaxRejects = None
