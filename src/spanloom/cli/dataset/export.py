"""Commands that bring any dataset to a trainer: export, plan, fetch, blend."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from spanloom.api.export_options import ExportOptions, PlanningOptions
from spanloom.cli import options as shared
from spanloom.cli.app import TRAIN, Printed, app, print_json, say
from spanloom.cli.outputs import file_option, folder_option
from spanloom.families import check_manifest
from spanloom.options.option import option


@app.command(rich_help_panel=TRAIN)
@dataclass(frozen=True, kw_only=True)
class Export:
    """Write the dataset for Hugging Face `datasets`, TRL, Axolotl, LLaMA-Factory or Megatron-Bridge, with a card.

    **parquet**: all columns, token-aligned: input_ids, labels (-100 where nothing is trained), loss_mask,
    assistant_masks; span_id and the id of SYNTH KD and of conversations; attention_mask of packed chat.

    **trl**: input_ids, labels, completion_mask, token-aligned.

    **axolotl**: input_ids, attention_mask, labels, token-aligned; the same in **llama-factory**, as a folder of
    `save_to_disk` for its tokenized_path.

    **megatron-bridge**: input_ids, loss_mask, seq_start_id: whole documents packed into rows of --sequence-length
    tokens, the mask about the next token, and packed_metadata.json.

    **messages**: of a source folder, conversations in the dialect of --for, for trainers that apply the template
    themselves; what the dialect cannot say is refused and counted. The mask is then the trainer's, and not proven.

    Examples: `spanloom export data/megatron/synth_kd_v1 --to trl --out data/synth_kd_trl`,
    `spanloom export data/megatron/synth_kd_v1 --to megatron-bridge --sequence-length 8192`
    """

    root: shared.LocalRootArgument
    out: Annotated[Path | None, folder_option("Folder for the export. Default: ROOT_parquet, beside ROOT.")] = None
    options: ExportOptions
    as_json: shared.Json = False
    quiet: shared.Quiet = False


@app.command(rich_help_panel=TRAIN)
@dataclass(frozen=True, kw_only=True)
class Plan:
    """Decide which documents share a sample of training, so that no document is cut without need.

    Writes a small index, no tokens: one dataset may have many plans. `spanloom.training.packed` (PyTorch) and
    `spanloom.training.packed_megatron` read it. Run again, the command checks the existing plan.

    Each shard is packed by itself. Where more than 2 % of a split's positions are padding, stderr says why.

    Example: `spanloom plan data/megatron/synth_kd_v1 --sequence-length 4096`
    """

    root: shared.LocalRootArgument
    sequence_length: Annotated[int, option("Positions of a sample.", min=2, show_default=False)]
    out: Annotated[Path | None, folder_option("Folder for the plan. Default: ROOT_plan_LENGTH, beside ROOT.")] = None
    options: PlanningOptions
    as_json: shared.Json = False
    quiet: shared.Quiet = False


@app.command(rich_help_panel=TRAIN)
def fetch(
    uri: Annotated[
        str,
        typer.Argument(metavar="URI", help="Root of a dataset: gs://bucket/path, s3://bucket/path or hf://datasets/…."),
    ],
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for the dataset; created if it does not exist.")
    ],
    printed: Printed,
) -> None:
    """Bring a dataset from a bucket to this machine, every file checked by the manifest's size and sha256.

    manifest.json is read first (a dataset that was not validated is refused) and written last: until it is in DIR
    there is no dataset there. Run the same command again after an interruption: existing files are kept, a broken
    download resumes where it stopped. Nothing is overwritten.

    gs:// takes Google's application-default credentials, s3:// those of AWS (and AWS_ENDPOINT_URL for other stores).
    SPANLOOM_STORAGE_DEADLINE says for how many seconds a store may fail before this gives up (300).

    Example: `spanloom fetch gs://my-bucket/synth_kd_v1 /data/synth_kd_v1`
    """
    from spanloom.dataset.fetch import fetch as run

    progress = printed.progress()
    with progress.stage("fetch"), progress.counting("fetch", "bytes") as on_progress:
        fetched = run(uri, directory, on_progress, check=check_manifest)
    counts = {name: getattr(fetched, name) for name in ("files_fetched", "bytes_fetched", "files_kept", "bytes_kept")}
    if printed.as_json:
        print_json({"root": str(directory), "uri": uri, **counts})
    else:
        say(
            f"{directory}: {fetched.files_fetched} files fetched ({fetched.bytes_fetched / 1e6:,.1f} MB), "
            f"{fetched.files_kept} kept ({fetched.bytes_kept / 1e6:,.1f} MB), all sizes and sha256 as the manifest says"
        )


@app.command("blend", rich_help_panel=TRAIN)
@dataclass(frozen=True, kw_only=True)
class PrintBlend:
    """Print the values of Megatron's data flags: the shards of train and valid, weighted by their tokens.

    Several prefixes without weights would stop after one epoch. `--data-path` takes one distribution for all splits,
    so it gets train alone; `--per-split-data-args-path` takes both.

    Example: `spanloom blend data/megatron/synth_kd_v1 --sequence-length 4096 --out blend.json`
    """

    root: Annotated[Path, typer.Argument(help="Root of a dataset.")]
    mount: Annotated[str | None, option("Path of the dataset on the trainer. Default: ROOT, as an absolute path.")] = (
        None
    )
    sequence_length: Annotated[int, option("Tokens in a sample; shards with fewer tokens are left out.", min=2)] = 2
    out: Annotated[Path | None, file_option("Write the file for Megatron's `--per-split-data-args-path` here.")] = None
    as_json: shared.Json = False
