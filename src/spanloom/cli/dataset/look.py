"""Commands that look at any dataset: validate and inspect."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from spanloom.cli import options
from spanloom.cli.app import LOOK, Printed, app
from spanloom.cli.outputs import file_option
from spanloom.cli.steps import step
from spanloom.dataset import defaults
from spanloom.families import dataset_family
from spanloom.options.option import option, place
from spanloom.options.shared import OnDuplicate


def rows_again(text: str) -> int:
    """`--deep`: a number of rows, or `all`. Raises ValueError."""
    rows = defaults.ALL_ROWS if text == "all" else int(text)
    if rows < 0:
        raise ValueError(f"{text} is below 0")
    return rows


@app.command(rich_help_panel=LOOK)
@dataclass(frozen=True, kw_only=True)
class Validate:
    """Check a dataset: files against the manifest, every token and label, the split. Writes nothing to the dataset.

    Reads through Megatron's own IndexedDataset, or the independent reader, and derives the loss mask from the tokens
    alone. Exits with 4 on any finding.
    A dataset at a URI is first staged to scratch, with all its files, and checked there.

    Example: `spanloom validate data/megatron/synth_kd_v1 --source data/synth_harmony --deep 1000 --html report.html`
    """

    root: options.RootArgument
    source: Annotated[
        list[str] | None,
        place(
            "The folder, file or URI it was built from: samples of it are built again and compared. Prepared "
            "games of chess may have two, of games and of thinking rows: give it twice."
        ),
    ] = None
    deep: Annotated[
        int | None,
        option(
            "Source rows to render again through openai-harmony or the model's template, or `all`; of packed chat, "
            "blocks of each shard to pack again. Default: 64 with --source. Of chess, games of each file; default 16.",
            takes=str | None,
            read=rows_again,
            metavar="ROWS",
        ),
    ] = None
    tokenizer: options.DatasetTokenizer = None
    reader: options.Reader = "auto"
    report_file: Annotated[Path | None, file_option("Write the report as JSON to this file.", "--report")] = None
    html: Annotated[Path | None, file_option("Write the report as an HTML page to this file.")] = None
    workers: options.Workers = None
    scratch: options.Scratch = None
    printed: Printed


@dataclass(frozen=True, kw_only=True)
class ChosenOptions:
    """Which documents, if none is named."""

    pick: Annotated[Literal["random", "first", "longest", "shortest"], option("Which documents, if none is named.")] = (
        "random"
    )
    count: Annotated[int | None, option("How many. Default: 1, or 20 with --html.", "--count", "-n", min=1)] = None
    seed: Annotated[int, option("Another seed draws other documents.", min=0)] = 0
    split: Annotated[str | None, option("Only of this split.")] = None
    shard: Annotated[int | None, option("Only of this shard.", min=0)] = None
    language: Annotated[str | None, option("Only in this language.")] = None
    exercise: Annotated[str | None, option("Only of this exercise.")] = None
    no_reasoning: Annotated[bool, option("Only documents without reasoning.", "--no-reasoning")] = False
    without: Annotated[
        str | None, option("Only documents without labels of this span, such as assistant.", metavar="SPAN")
    ] = None
    special_text: Annotated[
        bool, option("Only documents whose text contains strings such as <|end|>.", "--special-text")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ShownOptions:
    """What is shown of a document."""

    tokens: Annotated[bool, option("Show where tokens end.", "--tokens")] = False
    ids: Annotated[bool, option("Show token ids.", "--ids")] = False
    labels: Annotated[bool, option("Show which label each position learns.", "--labels")] = False
    most: Annotated[
        int, option("Tokens shown of a document, from its start and its end; 0: all.", "--max-tokens", min=0)
    ] = 2000


@app.command(rich_help_panel=LOOK)
@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Look at documents: what is read, what is learned as reasoning and what as answer, token by token.

    Context is dimmed, special tokens are visible, and a mark in the margin shows the span, also without colours.
    Escapes, bidi controls and HTML in the text are shown and never interpreted.

    Example: `spanloom inspect data/megatron/synth_kd_v1 --language de --labels`
    """

    root: Annotated[
        str, typer.Argument(metavar="ROOT", help="Root of a dataset: a folder, gs://, s3:// or hf://datasets/….")
    ]
    document: Annotated[
        list[str] | None, typer.Argument(help="Documents by place: SPLIT/SHARD/SEQUENCE, such as `train/0/17`.")
    ] = None
    ids_wanted: Annotated[list[str] | None, option("A document by its id in the source; repeatable.", "--id")] = None
    chosen: ChosenOptions
    shown: ShownOptions
    html: Annotated[Path | None, file_option("Write one self-contained page.")] = None
    tokenizer: options.DatasetTokenizer = None
    teacher: Annotated[
        str | None,
        option(
            "Folder or URI of a teacher's signals: colours say how much the teacher expected each token. On the page, "
            "a click on a token shows what it expected.",
            metavar="SIGNALS",
        ),
    ] = None
    scratch: options.Scratch = None
    as_json: Annotated[
        bool, option("Print the documents as a JSON list: messages, and each token's id, text and span.", "--json")
    ] = False


ValidatedSource = Annotated[str | None, place("The folder, file or URI it was built from.")]


@step("validate-alignment", "steps.validate_alignment", counting=("validate", "documents"))
def step_validate_alignment(
    root: options.Root,
    source: ValidatedSource = None,
    deep: Annotated[
        int, option("Source rows to render again, or blocks of each shard to pack again; needs --source.", min=0)
    ] = defaults.DEEP,
    tokenizer: options.TokenizerPlace = None,
    reader: options.Reader = "megatron",
    report: options.Report = None,
    html: options.HtmlPlace = None,
    scratch: options.Scratch = None,
    quiet: options.Quiet = False,
) -> dict[str, Any]:
    """Step 6: validate; promote the pending manifest to the manifest if it is clean. Exits with 4 on any finding."""
    return {"family_of": dataset_family, "deep": deep if source is not None else 0}


@step("assemble-dataset", "steps.assemble_dataset")
def step_assemble_dataset(
    inventories: options.Inventories,
    root: options.Root,
    rendered: Annotated[
        list[str],
        place(
            "The manifest of a shard's parts; give one for each shard, in order, or none of packed chat.", "--rendered"
        ),
    ] = [],  # noqa: B006 - typer reads it
    on_duplicate: OnDuplicate = "error",
    allow_unknown_sha: options.AllowUnknownSha = False,
    scratch: options.Scratch = None,
) -> None:
    """Step 5, after a task for each shard: look for repeated ids, and write manifest.pending.json.

    It is no dataset before validation has passed.
    """


@step("validate-shard", "steps.validate_shard", counting=("validate", "documents"))
def step_validate_shard(
    root: options.Root,
    shard: Annotated[int, option("Which shard, from 0.", min=0)],
    report: Annotated[str, place("File or URI for the report that assemble-validation takes.")],
    digests: Annotated[str, place("File or URI for the digests of ids and of tokens, 16 bytes a document.")],
    source: ValidatedSource = None,
    deep: Annotated[int, option("Source rows to render again, of all shards together.", min=0)] = defaults.DEEP,
    tokenizer: options.TokenizerPlace = None,
    scratch: options.Scratch = None,
    quiet: options.Quiet = False,
) -> dict[str, Any]:
    """Step 6, once a shard: validate the files of one shard against its source. Exits with 4 on any finding.

    Of the root only the manifest and this shard are read, and of a source in shards.
    """
    return {"family_of": dataset_family}


@step("assemble-validation", "steps.assemble_validation")
def step_assemble_validation(
    root: options.Root,
    shard_reports: Annotated[
        list[str], place("A shard's report; give one for each shard, in order.", "--shard-report")
    ],
    shard_digests: Annotated[
        list[str], place("The digests of a shard's ids; give one for each shard, in order.", "--shard-digests")
    ],
    source: Annotated[
        str | None, place("The folder, file or URI that each shard must have been compared with; it is not read.")
    ] = None,
    report: options.Report = None,
    html: options.HtmlPlace = None,
    scratch: options.Scratch = None,
) -> dict[str, Any]:
    """Step 7: join the reports of all shards, do the global checks, and promote the pending manifest to the manifest.

    The results are those of validate-alignment. Exits with 4 on any finding.
    """
    return {"family_of": dataset_family}
