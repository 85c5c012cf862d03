"""The options of `export` and `plan`, each declared once: keywords of the Python API, options of the commands."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Literal

from spanloom.api.options import Place
from spanloom.dataset import defaults
from spanloom.dataset.defaults import FormName, Trainer
from spanloom.options.option import option
from spanloom.options.shared import OnStage, Overwrite


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What is exported, and how."""

    to: Annotated[
        FormName | Literal["messages"],
        option(
            "All columns; those that TRL, Axolotl or LLaMA-Factory trains on; rows packed for Megatron-Bridge. "
            "messages: of a source folder, conversations for trainers that apply the template themselves.",
            takes=Literal["parquet", "trl", "axolotl", "llama-factory", "megatron-bridge", "messages"],
            given="parquet",
        ),
    ] = "parquet"
    trainer: Annotated[
        Trainer | None, option("messages only: the trainer whose dialect is written.", "--for", show_default=False)
    ] = None
    sequence_length: Annotated[
        int | None,
        option(
            f"megatron-bridge only: tokens of a row. Default: the block size, else {defaults.SEQUENCE_LENGTH:,}.",
            min=2,
        ),
    ] = None
    too_long: Annotated[
        Literal["stop", "drop"] | None,
        option("megatron-bridge only: stop at a document longer than a row, or drop and count it."),
    ] = None
    teacher: Annotated[
        str | None,
        option(
            "axolotl only: the folder of a teacher's signals, for the columns that Axolotl's distillation trains on. "
            "They are renormalised over the top k: the rest is lost.",
            metavar="SIGNALS",
        ),
    ] = None
    croissant: Annotated[
        bool | None,
        option(
            "Whether to write Croissant metadata (croissant.json). Default: where mlcroissant is installed.",
            "--croissant/--no-croissant",
        ),
    ] = None
    tokens_per_file: Annotated[int, option("Start a new file after this many tokens.", min=1)] = (
        defaults.TOKENS_PER_FILE
    )
    push: Annotated[
        str | None,
        option(
            "Then upload the export with its card as this dataset of the Hugging Face Hub; a new one is private. "
            "Needs `pip install 'spanloom[hub]'` and a token (`hf auth login`, or HF_TOKEN).",
            metavar="OWNER/NAME",
        ),
    ] = None
    overwrite: Overwrite = False


@dataclass(frozen=True)
class ExportPlaces(ExportOptions):
    """The same with the dataset, and the folder of the export."""

    root: Place
    out: Place | None = None
    _: KW_ONLY
    progress: bool | OnStage = False


@dataclass(frozen=True, kw_only=True)
class PlanningOptions:
    """How documents share samples."""

    strategy: Annotated[
        Literal["best-fit", "sequential"], option("Least padding, or documents in the order of the files.")
    ] = "best-fit"
    seed: Annotated[int, option("Seed that decides which documents share a sample.", min=0)] = 0
    long: Annotated[
        Literal["window", "truncate", "drop"],
        option(
            "Documents longer than a sample: split into windows that each repeat the question, truncated, or left out."
        ),
    ] = "window"
    question_tokens: Annotated[
        int | None, option("Positions of a window that the question may take. Default: half of a sample.", min=1)
    ] = None
    multiple_of: Annotated[
        int, option("Pad each document to a multiple of it, such as twice the context-parallel size.", min=1)
    ] = 1
    overwrite: Overwrite = False


@dataclass(frozen=True)
class PlanPlaces(PlanningOptions):
    """The same with the dataset, the positions of a sample, and the folder of the plan."""

    root: Place
    sequence_length: int
    out: Place | None = None
    _: KW_ONLY
    progress: bool | OnStage = False
