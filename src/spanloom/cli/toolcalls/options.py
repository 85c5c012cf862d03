"""Options of `spanloom toolcalls …`, and the files that a command is about."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:  # imported where it is used: `--help` should not wait for it
    from spanloom.families.toolcalls.format.source import SampleFile

ToolsDirOption = Annotated[
    Path | None, typer.Option("--tools-dir", help="Folder of JSON files of further registries of tools.")
]
TemplateOption = Annotated[
    Path | None,
    typer.Option(help="Chat template: a .jinja file, a tokenizer_config.json, or the folder of a tokenizer."),
]
HfTokenizerOption = Annotated[
    Path | None,
    typer.Option("--hf-tokenizer", help="Folder of a Hugging Face tokenizer: render by its apply_chat_template."),
]
TokenizerFileOption = Annotated[Path, typer.Option(help="A tokenizer.json, or its folder.")]
BosTokenOption = Annotated[
    str | None, typer.Option("--bos-token", help="What the template's bos_token is. Default: the file's, else Llama's.")
]
SourceOption = Annotated[
    Literal["b4", "agentdojo", "tau2", "ultrachat", "xstest"], typer.Option("--from", help="Which source.")
]
TurnsOption = Annotated[
    Literal["last", "all"], typer.Option(help="Of a dialogue the last assistant turn, or a sample of each.")
]
EodOption = Annotated[str, typer.Option(metavar="TOKEN", help="The tokenizer's token that ends a document.")]
ValidFractionOption = Annotated[
    float,
    typer.Option(
        "--valid-fraction", help="Share of the samples held out for validation; the id alone decides.", min=0, max=1
    ),
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option(
        "--max-length", help="Cut samples after so many tokens; one cut inside its answer is left out.", min=1
    ),
]


def one_target(data: str | None, data_dir: str | None) -> str:
    """What is looked at: either the one or the other."""
    if (data is None) == (data_dir is None):
        raise typer.BadParameter("give either --data or --data-dir")
    return str(data if data is not None else data_dir)


def sample_files(target: str, *, folder: bool) -> "list[SampleFile]":
    """The files of a target. Raises SourceError where there are none."""
    from spanloom.families.toolcalls.format.source import files_below, one_file

    return files_below(Path(target)) if folder else one_file(Path(target))
