"""`spanloom traces sample` and `ingest`: files of traces, or of forms of published data → the store."""

from dataclasses import dataclass
from typing import Annotated

import typer

from spanloom.cli import options
from spanloom.cli.app import Printed, traces_app
from spanloom.cli.traces import options as traces_options
from spanloom.families.traces import defaults
from spanloom.options.option import listing, option, place


@traces_app.command("sample")
def sample(
    out: Annotated[str, place("File or URI for the traces: JSON Lines.")],
    traces: Annotated[int, option("How many.", min=1)] = defaults.SAMPLE_TRACES,
    tokenizer: Annotated[str | None, place("File or URI for a small tokenizer.json of their text.")] = None,
    scratch: options.Scratch = None,
) -> None:
    """Write small traces of our own, and a tokenizer to try token datasets with."""
    from spanloom.families.traces.sample import run

    run(out=out, traces=traces, tokenizer=tokenizer, scratch=scratch)
    print(out)


@traces_app.command("ingest")
@dataclass(frozen=True, kw_only=True)
class Ingest:
    """Store the traces of files: one transaction a file, all of it or nothing.

    Takes traces, and the forms of published data: `<think>` tags, `reasoning_content`, OpenThoughts, OpenR1, s1K, LIMO,
    GSM8K, PRM800K; says which it found. Records that give no trace are skipped and reported with the reason. A file
    ingested twice changes nothing.

    Example: `spanloom traces ingest s1k.parquet --source-name s1k --max-step-characters 200000`
    """

    files: Annotated[
        list[str],
        typer.Argument(
            metavar="PLACE...",
            help="Files (.jsonl, .json, .csv, .tsv, .parquet, .arrow, also .gz or .zst), folders of them, folders of "
            "`save_to_disk`, patterns; - is stdin; or URIs.",
        ),
    ]
    source_name: Annotated[str, option("Value of meta.source of these traces.")]
    places: traces_options.Places
    maps: Annotated[
        tuple[str, ...],
        listing(
            "Which key of your records is the prompt, the answer, the steps; `a.b` reaches into objects, `a+b` joins "
            "texts. Default: the form of the first record, where it is known.",
            "--map",
            metavar="MEANING=KEY,…",
        ),
    ] = ()
    preview: Annotated[bool, option("Show the form and the first trace of each file, and stop.", "--preview")] = False
    max_step_characters: traces_options.MaxStepCharacters = None
    ids: traces_options.Ids = defaults.IDS
    strict: Annotated[bool, option("Stop at a line that is not a trace, and store nothing.", "--strict")] = False
    created_at: traces_options.CreatedAt = None
    scratch: options.Scratch = None
    printed: Printed
