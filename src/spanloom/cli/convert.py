"""`spanloom convert`: chat data in any known form → a source for `spanloom build`."""

from dataclasses import dataclass
from typing import Annotated

import typer

from spanloom.api.options import ConvertOptions
from spanloom.cli.app import MAKE, Printed, app
from spanloom.options.option import option, place


@app.command(rich_help_panel=MAKE)
@dataclass(frozen=True, kw_only=True)
class Convert:
    """Turn chat data into a source of whole conversations, for `spanloom build`.

    Takes OpenAI messages, ShareGPT, prompt and answer in columns, pairs of a chosen and a rejected answer, and forms of
    vendors (Harmony, Responses, Anthropic, Gemini, …). It reports the form that it found and what each key is taken
    for, and shows the first conversation as gpt-oss is trained on it. Of pairs the chosen answer is trained. What is
    not understood is refused with its line, or left out and counted where --drop says so.

    The source is for any model; what Harmony cannot hold is named at the end. The same input and options give the same
    bytes. Run it again after an interruption.

    On a terminal, the command prompts for identity, effort, date, cutoff and instructions that no option sets.

    Example: `spanloom convert chat.jsonl --out data/chat_source`, then
    `spanloom build --source data/chat_source --out data/chat`
    """

    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="PLACE...",
            help="Chat data: files (.jsonl, .json, .csv, .tsv, .parquet, .arrow, also .gz or .zst), folders of them, "
            "folders of `save_to_disk`, patterns such as 'chats/*.jsonl'; or URIs: gs://, s3://, hf://datasets/….",
        ),
    ]
    out: Annotated[str | None, place("Folder or URI for the source; new, or made by the same command.")] = None
    preview: Annotated[
        bool, option("Show the first conversation as gpt-oss is trained on it, and stop.", "--preview")
    ] = False
    dry_run: Annotated[
        bool, option("Convert all and write nothing: counts, and one record of each refusal.", "--dry-run")
    ] = False
    yes: Annotated[bool, option("Do not prompt: settings without an option are left out.", "--yes", "-y")] = False
    options: ConvertOptions
    printed: Printed
