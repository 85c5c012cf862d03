"""`spanloom toolcalls audit`, `mask`, `export`, `tokenize`: samples → rendered and masked → training data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from spanloom.cli import options
from spanloom.cli.app import Printed, print_json, toolcalls_app
from spanloom.cli.outputs import file_option, folder_option
from spanloom.families.toolcalls import defaults
from spanloom.families.toolcalls import options as toolcalls_options
from spanloom.options.option import option
from spanloom.options.shared import DealtOptions, OverwriteFile


@toolcalls_app.command("audit")
@dataclass(frozen=True, kw_only=True)
class Audit:
    """Render samples with a chat template, and find what would spoil a loss mask.

    Exits with 0 unless --strict is given and there are errors (4).
    """

    data: Annotated[str | None, option(f"One file of samples. Default: {defaults.MERGED}.", metavar="FILE")] = None
    data_dir: Annotated[str | None, option("All *.jsonl below it.", metavar="DIR")] = None
    rendering: toolcalls_options.Rendering
    tokenizer: Annotated[Path | None, option("A tokenizer.json or its folder: masks are counted in tokens too.")] = None
    limit: Annotated[int, option("Check only the first N samples; 0 for all.", min=0)] = defaults.AUDIT_LIMIT
    strict: Annotated[bool, option("Exit with 4 when there are errors.", "--strict")] = False
    report: Annotated[Path | None, file_option("Write the result to a file too (JSON).")] = None
    as_json: options.Json = False


@toolcalls_app.command("mask")
@dataclass(frozen=True, kw_only=True)
class Mask:
    """Write loss_mask_start and loss_mask_end into each sample; null where the answer cannot be located.

    Prints what became of the samples as JSON: how many have a mask, which had another one, why others have none.
    """

    output: Annotated[Path, file_option("File for the same samples with their masks (JSON Lines).")]
    tokenizer: toolcalls_options.TokenizerFile
    data: Annotated[Path, option("File of samples.")] = Path(defaults.MERGED)
    rendering: toolcalls_options.Rendering
    max_length: toolcalls_options.MaxLength = None
    control_texts: toolcalls_options.ControlTexts = defaults.CONTROL_TEXTS
    overwrite: OverwriteFile = False


@toolcalls_app.command("export")
@dataclass(frozen=True, kw_only=True)
class Export:
    """Write training files: samples rendered, tokenized and masked. Those without a mask are counted and left out."""

    output: Annotated[Path, file_option("File for the rows: .jsonl or .parquet.")]
    tokenizer: toolcalls_options.TokenizerFile
    data: Annotated[Path, option("File of merged samples.")] = Path(defaults.MERGED)
    rendering: toolcalls_options.Rendering
    max_length: toolcalls_options.MaxLength = None
    control_texts: toolcalls_options.ControlTexts = defaults.CONTROL_TEXTS
    batched: Annotated[
        bool, option("Rows of batches, with batch_id and role, as `batches` pairs them.", "--batched")
    ] = False
    benign_per_harmful: Annotated[int, option("Of a batch.", min=1)] = defaults.BENIGN_PER_HARMFUL
    seed: Annotated[int, option("Of the batches.")] = defaults.SEED
    require_tool_calls_harmful: toolcalls_options.RequireToolCalls = False
    max_harmful: Annotated[int | None, option("At most.", min=0)] = None
    overwrite: OverwriteFile = False


@toolcalls_app.command("tokenize")
def tokenize(
    *,
    tokenizer: Annotated[Path, option("A tokenizer.json, or its folder; it is copied into the roots.")],
    template: Annotated[
        Path, option("Chat template: a .jinja file, a tokenizer_config.json, or a tokenizer's folder.")
    ],
    out: Annotated[Path, folder_option("Folder for the roots DIR/harmful and DIR/retain.", metavar="DIR")],
    data: Annotated[Path, option("File of merged samples.")] = Path(defaults.MERGED),
    rules: toolcalls_options.TokenizeOptions,
    bos_token: toolcalls_options.BosToken = None,
    max_length: toolcalls_options.MaxLength = None,
    tools_dir: toolcalls_options.ToolsDir = None,
    running: DealtOptions,
    printed: Printed,
) -> None:
    """Make validated token datasets: one root of harmful samples, one of those to retain; never both in one.

    Exits with 4 when validation finds anything. Trainers open the harmful root with `allow_harmful=True` alone.
    """
    from spanloom.families.toolcalls import dataset as family
    from spanloom.families.toolcalls.build import BuildOptions, build
    from spanloom.families.toolcalls.steps.tokenize_toolcalls import TokenizeRules
    from spanloom.report.summary import result_json, show_result

    options = BuildOptions(
        data=data,
        template=template,
        tokenizer=tokenizer,
        out=out,
        rules=TokenizeRules(bos_token=bos_token, max_length=max_length, **vars(rules)),
        tools_dir=tools_dir,
        **vars(running),
    )
    results = list(build(options, printed.progress()))
    if printed.as_json:
        print_json({result.root.name: result_json(result.root, result.manifest, result.report) for result in results})
    else:
        for result in results:
            show_result(
                Console(), result.root, result.manifest, family.describe(result.manifest.content), result.report
            )
    if code := max(result.report.exit_code for result in results):
        raise typer.Exit(code)
