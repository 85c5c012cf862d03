"""Options of `spanloom toolcalls …`, and the files that a command reads."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from spanloom.options.option import option

if TYPE_CHECKING:  # imported where it is used: `--help` should not wait for it
    from spanloom.families.toolcalls.format.source import SampleFile

ToolsDir = Annotated[Path | None, option("Folder of JSON files of further registries of tools.", "--tools-dir")]
Template = Annotated[
    Path | None, option("Chat template: a .jinja file, a tokenizer_config.json, or the folder of a tokenizer.")
]
HfTokenizer = Annotated[
    Path | None, option("Folder of a Hugging Face tokenizer: render by its apply_chat_template.", "--hf-tokenizer")
]
TokenizerFile = Annotated[Path, option("A tokenizer.json, or its folder.")]
BosToken = Annotated[str | None, option("The template's bos_token. Default: the file's, else Llama's.", "--bos-token")]
Source = Annotated[
    Literal["b4", "agentdojo", "tau2", "ultrachat", "xstest", "messages"], option("Which source.", "--from")
]
Turns = Annotated[Literal["last", "all"], option("Of a dialogue the last assistant turn, or a sample of each.")]
Eod = Annotated[str, option("The tokenizer's token that ends a document.", metavar="TOKEN")]
ValidFraction = Annotated[
    float,
    option("Share of the samples held out for validation; the id alone decides.", "--valid-fraction", min=0, max=1),
]
MaxLength = Annotated[
    int | None,
    option("Truncate samples to this many tokens; one cut inside its answer is left out.", "--max-length", min=1),
]
ControlTexts = Annotated[
    Literal["refuse", "as-served", "text"],
    option(
        "Control tokens in texts of users, tools, system and tool definitions. refuse: such samples are left out. "
        "as-served: ids as a server makes them, never the EOD. text: encoded as text.",
        "--control-texts",
    ),
]
Spans = Annotated[
    Literal["answer", "parts"],
    option("One mask for the answer, or also a span for its prose, its calls and their arguments.", "--spans"),
]
Maps = Annotated[
    list[str] | None,
    option(
        "Which key of your records or messages means what, as for `spanloom convert`: messages, query, answer, tools, "
        "trained, masked, …",
        "--map",
        metavar="MEANING=KEY,…",
    ),
]
Metadata = Annotated[
    list[str] | None,
    option("Keys of records or messages that are no part of the conversation.", metavar="KEY,…"),
]
Roles = Annotated[
    list[str] | None,
    option("What a role of your messages is: `visitor=user`.", "--role", metavar="NAME=ROLE,…"),
]
Drop = Annotated[
    list[str] | None,
    option(
        "Leave out and count: a key of records, messages, calls or tools, `role:NAME`, `part:TYPE`, `think` (thoughts "
        "in tags). Flags of training cannot be dropped.",
        metavar="NAME,…",
    ),
]
ThinkTags = Annotated[
    bool | None,
    option(
        "`<think>…</think>` before an answer is left out and counted, or stays text of the answer. Default: left out "
        "of AgentDojo's traces; of other sources such a record is left out.",
        "--think-tags/--no-think-tags",
    ),
]
CallTags = Annotated[
    str | None,
    option(
        "Calls that texts write become calls: hermes, glaive, mistral, openhands, toolace. Default: such a record is "
        "left out.",
        metavar="STYLE",
    ),
]
TextAsIs = Annotated[
    bool,
    option(
        "Markup in answers that no other option reads stays text. Default: such a record is left out.", "--text-as-is"
    ),
]
JoinConsecutive = Annotated[
    bool,
    option(
        "Messages of the assistant in a row become one, a blank line between. Default: such an answer is left out.",
        "--join-consecutive",
    ),
]
RequireToolCalls = Annotated[
    bool, option("Leave out harmful samples that call no tool.", "--require-tool-calls-harmful")
]


def one_target(data: str | None, data_dir: str | None) -> str:
    """The one of two options that is given. Raises BadParameter for both and for none."""
    if (data is None) == (data_dir is None):
        raise typer.BadParameter("give either --data or --data-dir")
    return str(data if data is not None else data_dir)


def sample_files(target: str, *, folder: bool) -> "list[SampleFile]":
    """The files of a target. Raises SourceError if there are none."""
    from spanloom.families.toolcalls.format.source import files_below, one_file

    return files_below(Path(target)) if folder else one_file(Path(target))
